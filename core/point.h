/*
 * point: one moment of a session: memory, disk and device state. The row
 * says when it was, what it stands on and where its manifest lies.
 */
#ifndef CORE_POINT_H
#define CORE_POINT_H

#include "core/fields.h"
#include "core/id.h"

#define NAME_MAX_LEN 63
#define POINT_KEY_LEN (ID_LEN + 8)

#define POINT_KINDS(X)                    \
	X(NONE, "none")                   \
	X(ROLLING, "rolling")             \
	X(MANUAL, "manual")               \
	X(SUSPEND, "suspend")             \
	X(BEFORE_REWIND, "before-rewind") \
	X(FORK, "fork")                   \
	X(PARK, "park")

enum point_kind {
#define X(name, word) POINT_##name,
	POINT_KINDS(X)
#undef X
		POINT_KIND_NR
};

/* Names a point; enough to find its row and to place it on a line. */
struct point_ref {
	char id[ID_LEN + 1]; /* "": none */
	char session[ID_LEN + 1];
	int64_t time_ns;
	uint64_t epoch;
};

struct point {
	char id[ID_LEN + 1];
	char session[ID_LEN + 1];
	int64_t time_ns; /* host's wall clock at the stop; rises strictly */
	uint64_t epoch; /* of the sandbox that was captured */
	uint64_t seq; /* of its snapshot.committed */
	char parent[ID_LEN + 1]; /* point before it on its line, or "" */
	enum point_kind kind;
	char name[NAME_MAX_LEN + 1];
	uint8_t pack[16]; /* the pack that holds the manifest's frame ... */
	uint64_t offset; /* ... and where it begins, in bytes */
	uint8_t root[32]; /* state digest */
	uint8_t compat[32]; /* compatibility key */
	uint64_t memory_pages, disk_pages; /* pages that this capture found */
	uint64_t stored_bytes; /* what it added to the packs */
	uint64_t freeze_us, capture_us;
	bool unquiesced; /* the agent did not answer in time */
	bool keyframe;
};

extern const struct fields point_fields, point_ref_fields;
extern const char *const point_kind_words[POINT_KIND_NR];

struct point_ref point_ref_of(const struct point *p);

/* Key in TABLE_POINTS: session id + big-endian time */
void point_key(uint8_t ret_key[POINT_KEY_LEN], const char *session,
	       int64_t time_ns);

/* Canonical JSON row; -EINVAL if it is none. Any thread. */
void point_encode(struct buf *b, const struct point *p);
int point_decode(struct point *ret, const void *row, size_t len, struct err *e);

/*
 * A name for a session or a point: a letter, then letters, digits, '.', '_'
 * and '-', at most NAME_MAX_LEN, and not shaped like an id.
 */
bool point_name_valid(const char *name);

#endif
