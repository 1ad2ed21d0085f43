#include "store/store_index.h"

#include "base/assert.h"
#include "base/mem.h"

#define ENTRY_BYTES STORE_INDEX_ENTRY_BYTES
#define PAGE_BYTES ((size_t)4096)

#define LOAD_MAX_PER_MILLE 860u
/* Growing by 1/24 means that each insert has paid for the move of 24 entries. They are moved 48 at a
 * time, so that the old array does not fill up much further while it lasts. */
#define GROW_SHARE 24u
#define MOVES_PER_INSERT 48u
/* Arrays below this are rebuilt at once (some ten microseconds). */
#define SMALL_BYTES ((size_t)64 << 10)
/* Room at the end. Displacements at the full load fall off as exp(-0.28 n): 96 is hardly ever reached by
 * mixed keys. Keys made to collide reach it; the array is then rebuilt with twice the room. */
#define ROOM_MAX_USUAL 96u
#define CAPACITY_MIN 8u
/* An old array gives its pages back in so many steps. */
#define GIVE_BACK_STEPS 64u

static uint64_t load_stored(const struct store_index_array *array, uint64_t position)
{
    uint64_t stored = 0;
    memcpy(&stored, array->entries + position * ENTRY_BYTES, sizeof stored);
    return stored;
}

static uint32_t load_row(const struct store_index_array *array, uint64_t position)
{
    uint32_t row_plus_one = 0;
    memcpy(&row_plus_one, array->entries + position * ENTRY_BYTES + 8, sizeof row_plus_one);
    return row_plus_one - 1; /* An empty entry reads as STORE_INDEX_NONE. */
}

static void put(struct store_index_array *array, uint64_t position, uint64_t hash, uint32_t row)
{
    const uint64_t stored = ~hash;
    const uint32_t row_plus_one = row + 1;
    memcpy(array->entries + position * ENTRY_BYTES, &stored, sizeof stored);
    memcpy(array->entries + position * ENTRY_BYTES + 8, &row_plus_one, sizeof row_plus_one);
}

static bool is_empty(const struct store_index_array *array, uint64_t position)
{
    return load_row(array, position) == STORE_INDEX_NONE;
}

static uint64_t positions_of(const struct store_index_array *array)
{
    return array->capacity + array->room;
}

static uint64_t room_usual(uint64_t capacity)
{
    const uint64_t room = capacity / 16 + 4;
    return room < ROOM_MAX_USUAL ? room : ROOM_MAX_USUAL;
}

/* A lookup reads some entries past the last position; they are always empty and end it. */
static size_t array_bytes(uint64_t capacity, uint64_t room)
{
    return (capacity + room + STORE_INDEX_AHEAD) * ENTRY_BYTES;
}

static int array_init(struct store_index_array *array, uint64_t capacity, uint64_t room)
{
    size_t bytes = array_bytes(capacity, room);
    /* The heap would not give back what it got from arrays that were outgrown. */
    const bool is_mapped = bytes >= PAGE_BYTES;
    if (is_mapped) bytes = (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    uint8_t *entries = is_mapped ? mem_map(MEM_STORE, bytes) : mem_alloc(MEM_STORE, bytes);
    if (entries == NULL) return SHOAL_ENOMEM;
    *array = (struct store_index_array){.entries = entries,
                                        .capacity = capacity,
                                        .room = room,
                                        .bytes = bytes,
                                        .is_mapped = is_mapped};
    return 0;
}

static void array_fini(struct store_index_array *array)
{
    if (array->is_mapped) {
        mem_unmap(MEM_STORE, array->entries + array->given_back, array->bytes - array->given_back);
    } else {
        mem_free(array->entries);
    }
    *array = (struct store_index_array){0};
}

void store_index_init(struct store_index *index)
{
    *index = (struct store_index){.moved_to = UINT64_MAX};
}

void store_index_fini(struct store_index *index)
{
    array_fini(&index->arrays[STORE_INDEX_NOW]);
    array_fini(&index->arrays[STORE_INDEX_OLD]);
    store_index_init(index);
}

static bool is_growing(const struct store_index *index)
{
    return index->arrays[STORE_INDEX_OLD].entries != NULL;
}

/* The first position at or after home whose entry is empty or not below hash. */
static uint64_t position_of(const struct store_index_array *array, uint64_t hash)
{
    uint64_t position = store_index_home(array, hash);
    while (load_stored(array, position) > ~hash) position++;
    return position;
}

/* Puts an entry in its place and shifts those after it up to the next gap. False when the array ends
 * before a gap comes; nothing is changed then. */
static bool array_insert(struct store_index_array *array, uint64_t hash, uint32_t row,
                         uint64_t *position_out)
{
    const uint64_t position = position_of(array, hash);
    const uint64_t end = positions_of(array);
    uint64_t gap = position;
    while (gap < end && !is_empty(array, gap)) gap++;
    if (gap == end) return false;
    uint8_t *at = array->entries + position * ENTRY_BYTES;
    memmove(at + ENTRY_BYTES, at, (gap - position) * ENTRY_BYTES);
    put(array, position, hash, row);
    *position_out = position;
    return true;
}

static uint64_t capacity_for(uint64_t count)
{
    const uint64_t capacity = count * 1000 / LOAD_MAX_PER_MILLE + 1;
    return capacity < CAPACITY_MIN ? CAPACITY_MIN : capacity;
}

/* What an index that holds count entries grows to. */
static uint64_t capacity_next(uint64_t count)
{
    return capacity_for(count + count / GROW_SHARE + 1);
}

/* Copies all entries, which come in order, to an empty array. False when it ends too early. */
static bool copy_all(const struct store_index *index, struct store_index_array *array)
{
    struct store_index_cursor cursor = {0};
    uint64_t hash = 0;
    uint32_t row = 0;
    uint64_t free = 0;
    while (store_index_next(index, &cursor, &hash, &row)) {
        const uint64_t home = store_index_home(array, hash);
        const uint64_t position = home > free ? home : free;
        if (position >= positions_of(array)) return false;
        put(array, position, hash, row);
        free = position + 1;
    }
    return true;
}

/* Moves everything into one new array in one go. */
static int rebuild(struct store_index *index, uint64_t capacity, uint64_t room)
{
    struct store_index_array array = {0};
    if (array_init(&array, capacity, room) != 0) return SHOAL_ENOMEM;
    while (!copy_all(index, &array)) {
        room *= 2;
        array_fini(&array);
        if (array_init(&array, capacity, room) != 0) return SHOAL_ENOMEM;
    }
    for (int i = 0; i < 2; i++) array_fini(&index->arrays[i]);
    index->arrays[STORE_INDEX_NOW] = array;
    index->moved_to = UINT64_MAX;
    return 0;
}

/* Keeps (3). */
static void give_back(struct store_index *index)
{
    struct store_index_array *old = &index->arrays[STORE_INDEX_OLD];
    const size_t behind = store_index_home(old, index->moved_to) * ENTRY_BYTES;
    const size_t dead = behind / PAGE_BYTES * PAGE_BYTES;
    /* In steps: a call into the kernel costs as much as moving a hundred entries. */
    if (dead - old->given_back < old->bytes / GIVE_BACK_STEPS || dead == old->given_back) return;
    mem_unmap(MEM_STORE, old->entries + old->given_back, dead - old->given_back);
    old->given_back = dead;
}

static void grow_end(struct store_index *index)
{
    array_fini(&index->arrays[STORE_INDEX_OLD]);
    index->moved_to = UINT64_MAX;
}

/* Moves the next few entries to the new array. False when it has no room for one (keys made to
 * collide); all is in order then, but the growth cannot go on. */
static bool move_some(struct store_index *index)
{
    struct store_index_array *old = &index->arrays[STORE_INDEX_OLD];
    const uint64_t end = positions_of(old);
    uint64_t at = index->old_next;
    for (uint32_t moved = 0; moved < MOVES_PER_INSERT; moved++) {
        while (at < end && is_empty(old, at)) at++;
        if (at == end) {
            grow_end(index);
            return true;
        }
        const uint64_t hash = ~load_stored(old, at);
        uint64_t position = 0;
        if (!array_insert(&index->arrays[STORE_INDEX_NOW], hash, load_row(old, at), &position)) {
            return false;
        }
        index->old_next = ++at;
        index->moved_to = hash;
    }
    if (index->moved_to == UINT64_MAX) {
        grow_end(index); /* Nothing can be above it. */
    } else {
        give_back(index);
    }
    return true;
}

/* A large array has thousands of entries, so the first move sets moved_to. */
static int grow_start(struct store_index *index)
{
    const uint64_t capacity = capacity_next(index->count);
    struct store_index_array *now = &index->arrays[STORE_INDEX_NOW];
    uint64_t room = room_usual(capacity);
    if (now->room > ROOM_MAX_USUAL) room = now->room; /* It was needed before. */
    if (now->bytes < SMALL_BYTES) return rebuild(index, capacity, room);
    struct store_index_array array = {0};
    if (array_init(&array, capacity, room) != 0) return SHOAL_ENOMEM;
    index->arrays[STORE_INDEX_OLD] = *now;
    *now = array;
    index->moved_to = 0;
    index->old_next = 0;
    return 0;
}

int store_index_insert(struct store_index *index, uint64_t hash, uint32_t row)
{
    ASSERT(row != STORE_INDEX_NONE);
    struct store_index_array *arrays = index->arrays;
    const uint64_t full = arrays[STORE_INDEX_NOW].capacity * LOAD_MAX_PER_MILLE / 1000;
    if (!is_growing(index) && index->count >= full && grow_start(index) != 0) return SHOAL_ENOMEM;
    bool fits = !is_growing(index) || move_some(index);
    const int which = hash > index->moved_to ? STORE_INDEX_OLD : STORE_INDEX_NOW;
    uint64_t position = 0;
    if (fits) fits = array_insert(&arrays[which], hash, row, &position);
    if (fits && which == STORE_INDEX_OLD && position < index->old_next) index->old_next = position;
    /* A crowd of neighbouring hashes at the end of an array: give the end more room. */
    uint64_t room = arrays[0].room > arrays[1].room ? arrays[0].room : arrays[1].room;
    while (!fits) {
        room *= 2;
        if (rebuild(index, capacity_next(index->count), room) != 0) return SHOAL_ENOMEM;
        fits = array_insert(&arrays[STORE_INDEX_NOW], hash, row, &position);
    }
    index->count++;
    return 0;
}

uint32_t store_index_remove(struct store_index *index, uint64_t hash)
{
    struct store_index_array *array = &index->arrays[hash > index->moved_to];
    if (array->entries == NULL) return STORE_INDEX_NONE;
    const uint64_t position = position_of(array, hash);
    const uint32_t row = load_row(array, position);
    if (row == STORE_INDEX_NONE || load_stored(array, position) != ~hash) return STORE_INDEX_NONE;
    /* Those behind that are not at home move up, so that no gap parts an entry from its home. */
    uint64_t end = position + 1;
    while (!is_empty(array, end) && store_index_home(array, ~load_stored(array, end)) < end) end++;
    uint8_t *at = array->entries + position * ENTRY_BYTES;
    memmove(at, at + ENTRY_BYTES, (end - position - 1) * ENTRY_BYTES);
    memset(array->entries + (end - 1) * ENTRY_BYTES, 0, ENTRY_BYTES);
    index->count--;
    return row;
}

static bool array_next(const struct store_index_array *array, uint64_t *position,
                       uint64_t *hash_out, uint32_t *row_out)
{
    if (array->entries == NULL) return false;
    const uint64_t end = positions_of(array);
    while (*position < end && is_empty(array, *position)) ++*position;
    if (*position == end) return false;
    *hash_out = ~load_stored(array, *position);
    *row_out = load_row(array, *position);
    ++*position;
    return true;
}

bool store_index_next(const struct store_index *index, struct store_index_cursor *cursor,
                      uint64_t *hash_out, uint32_t *row_out)
{
    if (!cursor->in_old) {
        const struct store_index_array *now = &index->arrays[STORE_INDEX_NOW];
        if (array_next(now, &cursor->position, hash_out, row_out)) return true;
        *cursor = (struct store_index_cursor){.position = index->old_next, .in_old = true};
    }
    return array_next(&index->arrays[STORE_INDEX_OLD], &cursor->position, hash_out, row_out);
}

bool store_index_tend(struct store_index *index)
{
    struct store_index_array *array = &index->arrays[STORE_INDEX_NOW];
    if (is_growing(index) || !array->is_mapped) return false;
    if (array->joined + MEM_HUGE_BYTES > array->bytes) return false;
    mem_join(array->entries + array->joined);
    array->joined += MEM_HUGE_BYTES;
    return true;
}

size_t store_index_bytes(const struct store_index *index)
{
    const struct store_index_array *now = &index->arrays[STORE_INDEX_NOW];
    const struct store_index_array *old = &index->arrays[STORE_INDEX_OLD];
    if (!is_growing(index)) return now->bytes;
    /* The pages of the new array are touched up to where the last entry went. */
    const size_t touched = (store_index_home(now, index->moved_to) + 1) * ENTRY_BYTES + PAGE_BYTES;
    return (touched < now->bytes ? touched : now->bytes) + old->bytes - old->given_back;
}

uint64_t store_index_bytes_plan(uint64_t count)
{
    const uint64_t capacity = capacity_next(count);
    return array_bytes(capacity, room_usual(capacity));
}

/* Counts the entries from a position on if they are in order, at their places and in low..high. */
static bool array_ok(const struct store_index_array *array, uint64_t from, uint64_t low,
                     uint64_t high, uint64_t *count)
{
    if (array->entries == NULL) return true;
    const uint64_t end = positions_of(array);
    uint64_t gap = from; /* No entry's home is before the last gap: none would be found. */
    uint64_t least = low;
    for (uint64_t position = from; position < end + STORE_INDEX_AHEAD; position++) {
        if (is_empty(array, position)) {
            if (load_stored(array, position) != 0) return false;
            gap = position + 1;
            continue;
        }
        const uint64_t hash = ~load_stored(array, position);
        const uint64_t home = store_index_home(array, hash);
        if (position >= end || hash < least || hash > high) return false;
        if (home > position || (home < gap && gap > from)) return false;
        least = hash + 1;
        ++*count;
    }
    return true;
}

bool store_index_ok(const struct store_index *index)
{
    const bool growing = is_growing(index);
    if (!growing && index->moved_to != UINT64_MAX) return false;
    uint64_t count = 0;
    if (!array_ok(&index->arrays[STORE_INDEX_NOW], 0, 0, index->moved_to, &count)) return false;
    if (growing && !array_ok(&index->arrays[STORE_INDEX_OLD], index->old_next, index->moved_to + 1,
                             UINT64_MAX, &count)) {
        return false;
    }
    return count == index->count;
}
