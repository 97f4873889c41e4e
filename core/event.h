/*
 * event: what happened. State is the fold of the log and nothing else.
 * The engine fills everything but seq, which the store gives on append.
 */
#ifndef CORE_EVENT_H
#define CORE_EVENT_H

#include "core/id.h"
#include "core/json.h"

#include "core/event_table.h"

#define EVENT_ACTOR_LEN 64
#define EVENT_DATA_MAX (256u << 10) /* bytes of canonical data */

struct event {
	uint64_t seq; /* 1, 2, 3 ... without holes */
	int64_t wall_ns; /* host's wall clock */
	int64_t mono_ns; /* host's CLOCK_BOOTTIME */
	uint8_t boot_id[16];
	enum event_type type; /* EVENT_UNKNOWN: see type_name */
	char type_name[48]; /* kept even when this build doesn't know it */
	uint16_t schema; /* version of the type's data */
	char tenant[ID_LEN + 1]; /* "" for the node's own */
	char session[ID_LEN + 1]; /* "" if about none */
	char actor[EVENT_ACTOR_LEN]; /* "key:ID" "local:UID" "system" "driver" */
	json_t *data; /* owned; an object; see the table for its members */
};

const char *event_type_name(enum event_type t);
enum event_type event_type_parse(const char *name); /* or EVENT_UNKNOWN */

void event_done(struct event *ev); /* drops data, zeroes */

/* Body as the log seals it: canonical JSON {actor,data,schema,session,...} */
int event_body_encode(struct buf *b, const struct event *ev, struct err *e);
int event_body_decode(struct event *ret_ev, const void *p, size_t len,
		      struct err *e);

/* The whole event as people and programs see it: {seq,time,type,...}; owned */
json_t *event_to_json(const struct event *ev);

#endif
