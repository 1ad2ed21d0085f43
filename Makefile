# shoal: `make` builds build/shoal; `make demo` and `make test` need nothing else first.
# Every .c under src/<layer>/ is found by itself. Suffixes say what a file is:
#   *_test.c  a test program        *_fuzz.c  a fuzz target
#   *_isa.c   kernels, compiled once per instruction set (see ISAS)
MAKEFLAGS += --no-builtin-rules
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell nproc)
endif

CC      = gcc
BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
V       ?= 0
SAN     ?=
OPT     ?= -O2
Q       = $(if $(filter 1,$(V)),,@)
say     = $(if $(filter 1,$(V)),,@printf '%-4s %s\n' $(1) $(2);)

PACKAGES = libfyaml jansson libisal libzstd
WARNINGS = -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla \
           -Wno-sign-conversion -Werror
SANFLAGS = $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer -DSHOAL_SLOW_CHECKS)
CFLAGS   = -std=gnu17 $(OPT) -g -fPIC -fvisibility=hidden -fno-math-errno -ffp-contract=off \
           -pthread $(WARNINGS) $(SANFLAGS)
CPPFLAGS = -Isrc -Iinclude -MMD -MP -D_GNU_SOURCE $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
LDFLAGS  = -pthread $(SANFLAGS)
LDLIBS   = $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) -lm

ISAS       = plain avx2 avx512
ISA_plain  =
ISA_avx2   = -mavx2 -mfma -mf16c -mbmi2
ISA_avx512 = -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mbmi2 -mprefer-vector-width=512

ALL   := $(sort $(wildcard src/*/*.c))
TESTS := $(filter %_test.c,$(ALL))
FUZZ  := $(filter %_fuzz.c,$(ALL))
KERN  := $(filter %_isa.c,$(ALL))
SRCS  := $(filter-out $(TESTS) $(FUZZ) $(KERN) src/cli/main.c,$(ALL))
OBJS  := $(SRCS:%.c=$(BUILD)/%.o) $(foreach isa,$(ISAS),$(KERN:%.c=$(BUILD)/%.$(isa).o))
TEST_BINS := $(patsubst src/%.c,$(BUILD)/tests/%,$(TESTS))

.PHONY: all test check fuzz bench demo deps install lint format clean
all: $(BUILD)/shoal $(BUILD)/libshoal.a $(BUILD)/libshoal.so

$(BUILD)/%.o: %.c | tools-ready
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS) -c -o $@ $<

define isa_rule
$(BUILD)/%.$(1).o: %.c | tools-ready
	@mkdir -p $$(@D)
	$$(call say,CC,"$$< ($(1))")$$(CC) $$(CPPFLAGS) $$(CFLAGS) -O3 -ffp-contract=fast $(ISA_$(1)) -DISA=$(1) -DISA_$(1)=1 -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

$(BUILD)/libshoal.a: $(OBJS)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^

$(BUILD)/libshoal.so: $(OBJS)
	$(call say,LD,$@)$(CC) -shared -Wl,-soname,libshoal.so.0 $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/shoal: $(BUILD)/src/cli/main.o $(BUILD)/libshoal.a
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

$(BUILD)/tests/%: $(BUILD)/src/%.o $(BUILD)/tests/test.o $(BUILD)/libshoal.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS) -o $@ $^ $(LDLIBS)

.PHONY: tests tools-ready
tools-ready: ;
tests: $(TEST_BINS) all

test: tests
	@tests/run $(BUILD)

clean:
	rm -rf build

.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
