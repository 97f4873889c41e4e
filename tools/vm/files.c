/*
 * files: the daemon's FILE requests, turned into calls to the agent. Each is
 * idempotent: reads name an offset, writes go to a file beside the target
 * that a handle names, and COMMIT renames it.
 */
#include "tools/vm/vm.h"

#define FILES_TIMEOUT_MS 30000

struct file_call {
	struct vm *vm;
	struct link_from to;
};

static void files_answer(void *ctx, int ret, const struct agent_msg *m,
			 const struct err *e)
{
	struct file_call *c = ctx;
	struct wire_file_reply w = { 0 };
	const uint8_t *data = NULL;

	if (ret < 0) {
		link_reply_err(c->vm->link, c->to, ret, e);
		free(c);
		return;
	}
	if (m->type == AGENT_FILE_INFO) {
		w.size = m->file_info.size;
		w.mtime_ns = m->file_info.mtime_ns;
		w.mode = m->file_info.mode;
		w.uid = m->file_info.uid;
		w.gid = m->file_info.gid;
	} else if (m->type == AGENT_FILE_DATA) {
		w.size = m->file_data.size;
		w.mtime_ns = m->file_data.mtime_ns;
		w.len = m->file_data.data.len;
		data = m->file_data.data.p;
	} else if (m->type == AGENT_FILE_WRITTEN) {
		w.size = m->file_written.size;
	}
	link_reply(c->vm->link, c->to, &w, sizeof(w), data, w.len, NULL, 0);
	free(c);
}

/* The name of a half-written file: the handle in the shape of an id. */
static void files_tag(char ret[ID_LEN + 1], uint64_t handle)
{
	snprintf(ret, ID_LEN + 1, "w%019llx", (unsigned long long)handle);
}

static int files_shape(struct agent_msg *m, const struct wire_file *q,
		       const char *path, struct agent_bytes data, const char *tag)
{
	switch ((enum wire_file_op)q->op) {
	case WIRE_FILE_STAT:
		m->type = AGENT_FILE_STAT;
		m->file_stat = (struct agent_file_stat){ .path = path };
		return 0;
	case WIRE_FILE_READ:
		m->type = AGENT_FILE_READ;
		m->file_read = (struct agent_file_read){
			.path = path,
			.offset = q->offset,
			.len = MIN(q->len, AGENT_DATA_MAX),
		};
		return 0;
	case WIRE_FILE_WRITE:
		m->type = AGENT_FILE_WRITE;
		m->file_write = (struct agent_file_write){ .tag = tag,
							   .path = path,
							   .offset = q->offset,
							   .data = data };
		return 0;
	case WIRE_FILE_COMMIT:
		m->type = AGENT_FILE_COMMIT;
		m->file_commit = (struct agent_file_commit){
			.tag = tag,
			.path = path,
			.mode = q->mode,
			.uid = q->uid,
			.gid = q->gid,
			.size = q->offset,
		};
		return 0;
	case WIRE_FILE_ABORT:
		m->type = AGENT_FILE_ABORT;
		m->file_abort =
			(struct agent_file_abort){ .tag = tag, .path = path };
		return 0;
	case WIRE_FILE_MKDIR:
		m->type = AGENT_FILE_MKDIR;
		m->file_mkdir = (struct agent_file_mkdir){ .path = path,
							   .mode = q->mode,
							   .uid = q->uid,
							   .gid = q->gid,
							   .parents = 1 };
		return 0;
	case WIRE_FILE_NR:
		break;
	}
	return -EINVAL;
}

void files_request(struct vm *vm, struct wire_msg *m)
{
	struct file_call *c = base_alloc(sizeof(*c));
	struct agent_msg out = { 0 };
	struct agent_bytes data;
	const char *path;
	struct wire_file q;
	char tag[ID_LEN + 1];
	size_t tail = m->len - sizeof(q);
	struct err e;
	int r;

	*c = (struct file_call){ .vm = vm, .to = link_from(vm->link, m) };
	wire_body(m, &q, sizeof(q));
	path = (const char *)m->body + sizeof(q);
	files_tag(tag, q.handle);
	if (q.path_len < 2 || q.path_len > tail || path[q.path_len - 1] != 0 ||
	    tail - q.path_len > AGENT_DATA_MAX) {
		r = err_set(&e, -EINVAL, ERR_INTERNAL, "malformed file request");
		files_answer(c, r, NULL, &e);
		return;
	}
	data = (struct agent_bytes){ .p = m->body + sizeof(q) + q.path_len,
				     .len = (uint32_t)(tail - q.path_len) };
	r = files_shape(&out, &q, path, data, tag);
	if (r < 0)
		err_set(&e, r, ERR_INTERNAL, "unknown file request %u", q.op);
	else if (!agent_get_link(vm->agent))
		r = err_set(&e, -ENOTCONN, ERR_CONFLICT, "guest agent is silent");
	else
		r = agent_link_call(agent_get_link(vm->agent), &out,
				    FILES_TIMEOUT_MS, files_answer, c, &e);
	if (r < 0)
		files_answer(c, r, NULL, &e);
}
