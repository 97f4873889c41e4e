/*
 * daemon: see daemon.h. The order of a start:
 *
 *   data folder, keys, log            the truth
 *   helper, driver                    what lives: found by its sockets
 *   engine: recover                   rows against what lives
 *   engine, driver: run               outcomes and effects flow
 *   templates                         those that root has put there
 *   listeners, seccomp, door          only now does anybody get in
 */
#include "tools/cryod/daemon.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "core/backend/accel_probe.h"
#include "core/backend/seccomp.h"
#include "core/log.h"
#include "core/rows.h"
#include "store/datadir.h"

#define DEFAULT_TENANT "default"
#define CALL_MS 30000
#define TEMPLATE_WAIT_MS 30000

/* --- the truth --------------------------------------------------------------------- */

static int daemon_store(struct daemon *d, struct err *e)
{
	int r = datadir_create(d->opt.data, (uid_t)-1, (gid_t)-1, e);

	if (r == 0)
		r = datadir_tmp_clean(d->opt.data, e);
	if (r == 0)
		r = datadir_ballast_ensure(d->opt.data, DATADIR_BALLAST, e);
	if (r > 0)
		log_warn("event=no_ballast why=\"little free space in %s\"",
			 d->opt.data);
	if (r >= 0)
		r = keys_open(&d->keys, d->opt.data, d->opt.provider_key, false,
			      &clock_real, e);
	if (r == 0)
		r = evlog_open(&d->log, d->opt.data, d->keys, false, e);
	if (r < 0)
		return r;
	view_read_port(d->log, &d->views);
	view_store_port(d->log, &d->store);
	host_init(&d->host, d->opt.data, d->keys);
	d->output = output_new(&d->host, &d->views);
	return 0;
}

/* --- the driver ---------------------------------------------------------------------- */

static void daemon_on_output(void *ctx, const char *session UNUSED,
			     const char *tag UNUSED,
			     const struct wire_output *o UNUSED)
{
	output_poke(((struct daemon *)ctx)->output);
}

static void daemon_on_commit(void *ctx, uint64_t last_seq UNUSED)
{
	output_poke(((struct daemon *)ctx)->output);
}

/* Hot images may take a quarter of the host's memory. */
static uint64_t daemon_cache_bytes(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) *
	       (uint64_t)sysconf(_SC_PAGESIZE) / 4;
}

/*
 * Part of every park key: another VMM build, accelerator or command line
 * parks anew. The
 * kernel and the machine's shape are in the template and in the key.
 */
static void daemon_platform(struct daemon *d, enum vmm_accel accel)
{
	uint8_t in[HELPER_DIGEST + 2], hash[32];

	memcpy(in, d->info.vmm_digest, HELPER_DIGEST);
	in[HELPER_DIGEST] = (uint8_t)accel;
	in[HELPER_DIGEST + 1] = VMM_ARGV_VERSION;
	crypt_sha256(hash, in, sizeof(in));
	for (int i = 0; i < 16; i++)
		snprintf(d->platform + 2 * i, 3, "%02x", hash[i]);
}

static void daemon_any_template(void *ctx, const char *digest)
{
	base_strcpy(ctx, DIGEST_TEXT_LEN + 1, digest);
}

/* A template to try the accelerator with; `cryo up` is bringing one. */
static int daemon_wait_template(struct daemon *d, char ret[DIGEST_TEXT_LEN + 1],
				struct err *e)
{
	ret[0] = 0;
	for (int i = 0; i < TEMPLATE_WAIT_MS / 100; i++) {
		int r = host_templates(&d->host, daemon_any_template, ret, e);

		if (r < 0 || ret[0])
			return r;
		usleep(100000);
	}
	return err_set(e, -ENOENT, ERR_NOT_FOUND,
		       "there is no template to try it with");
}

/* accel_probe's: a Linux guest under KVM, through the usual path. */
static int daemon_try_kvm(void *ctx, int timeout_ms, struct err *e)
{
	struct daemon *d = ctx;
	struct qemu_conf c = d->qemu_conf;
	struct session_spec spec = { .memory_mib = limits_default.memory_mib,
				     .vcpus = 1,
				     .disk_mib = limits_default.disk_mib };
	struct qemu *q = NULL;
	int r = daemon_wait_template(d, spec.template_digest, e);

	c.accel = VMM_ACCEL_KVM;
	if (r == 0)
		r = qemu_new(&q, &c, e);
	if (r == 0)
		r = qemu_try_boot(q, &spec, timeout_ms, e);
	qemu_free(q);
	return r;
}

/* The kernel that the probe's verdict is about: that of the template. */
static void daemon_probe_kernel(struct daemon *d, uint8_t ret[32])
{
	char digest[DIGEST_TEXT_LEN + 1] = "";
	struct qemu_template t;
	struct err e;

	memset(ret, 0, 32);
	if (host_templates(&d->host, daemon_any_template, digest, &e) < 0 ||
	    !digest[0] || host_template_open(&d->host, digest, &t, &e) < 0)
		return;
	memcpy(ret, t.kernel_digest, 32);
	close(t.kernel_fd);
	close(t.initrd_fd);
	close(t.disk_fd);
}

static int daemon_accel(struct daemon *d, struct accel_result *ret, struct err *e)
{
	SCOPED_FD int cache =
		open(d->opt.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint8_t kernel[32];
	struct accel_probe p = {
		.wish = d->opt.want_kvm	  ? ACCEL_WANT_KVM
			: d->opt.want_tcg ? ACCEL_WANT_TCG
					  : ACCEL_AUTO,
		.has_kvm = d->info.has_kvm,
		.boot = daemon_try_kvm,
		.ctx = d,
		.cache_dir = cache,
		.boot_id = d->boot_id,
		.kernel_digest = kernel,
		.vmm_digest = d->info.vmm_digest,
	};
	int r;

	daemon_probe_kernel(d, kernel);
	r = accel_probe(&p, ret, e);
	if (r == 0)
		log_info("event=accel accel=%s why=\"%s\"",
			 vmm_accel_name(ret->accel), ret->why);
	return r;
}

static int daemon_driver(struct daemon *d, struct err *e)
{
	struct qemu_conf *c = &d->qemu_conf;
	struct accel_result accel = { 0 };
	int r;

	d->helper = helper_client_new(HELPER_CRYOD_FD);
	*c = (struct qemu_conf){ .helper = d->helper,
				 .host = &d->host.port,
				 .views = &d->views,
				 .image_cache_bytes = daemon_cache_bytes(),
				 .sha256 = crypt_sha256,
				 .on_output = daemon_on_output,
				 .on_output_ctx = d };
	r = helper_client_info(d->helper, &d->info, e);
	if (r == 0)
		r = accel_tsc_khz(&c->tsc_khz, e);
	memcpy(c->vmm_digest, d->info.vmm_digest, sizeof(c->vmm_digest));
	if (r == 0)
		r = daemon_accel(d, &accel, e);
	if (r < 0)
		return r;
	c->accel = accel.accel;
	base_strcpy(d->accel_why, sizeof(d->accel_why), accel.why);
	daemon_platform(d, accel.accel);
	return qemu_new(&d->qemu, c, e);
}

/* --- the engine --------------------------------------------------------------------------- */

static void daemon_env_digest(void *ctx, const char *tenant, const void *p,
			      size_t len, uint8_t ret[32])
{
	struct daemon *d = ctx;
	uint8_t key[32];

	keys_node_derive(d->keys, "cryo-env-v1", tenant, strlen(tenant), key,
			 sizeof(key));
	crypt_hmac_sha256(ret, key, sizeof(key), p, len);
	base_wipe(key, sizeof(key));
}

static int daemon_boot_id(struct daemon *d, uint8_t ret[16], struct err *e)
{
	SCOPED_FD int fd =
		open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	int at = 0;

	if (fd < 0 || read(fd, d->boot_id, 36) != 36)
		return err_sys(e, errno, "read the host's boot id");
	for (const char *p = d->boot_id; *p && at < 32; p++) {
		int digit = *p >= 'a' ? *p - 'a' + 10 : *p - '0';

		if (*p == '-')
			continue;
		ret[at / 2] = (uint8_t)(ret[at / 2] << 4 | (digit & 15));
		at++;
	}
	return 0;
}

static void daemon_free_live(struct backend_live *live, int nr)
{
	for (int i = 0; i < nr; i++)
		free(live[i].hello);
	free(live);
}

static int daemon_engine(struct daemon *d, struct engine_conf *c, struct err *e)
{
	struct backend_live *live = NULL;
	int nr = 0, r;

	c->store = &d->store;
	c->views = &d->views;
	c->clock = &clock_real;
	c->backend = qemu_backend(d->qemu);
	c->limits = limits_default;
	base_strcpy(c->limits.platform, sizeof(c->limits.platform), d->platform);
	c->version = CRYO_VERSION;
	c->env_digest = daemon_env_digest;
	c->env_digest_ctx = d;
	c->on_commit = daemon_on_commit;
	c->on_commit_ctx = d;
	d->engine = engine_new(c);
	r = qemu_find(d->qemu, &live, &nr, e);
	if (r == 0)
		r = engine_recover(d->engine, live, nr, e);
	if (r == 0)
		r = engine_run(d->engine, e);
	if (r == 0)
		r = qemu_run(d->qemu, engine_sink(d->engine), e);
	daemon_free_live(live, nr);
	return r;
}

static int daemon_call(struct daemon *d, struct command *c, struct err *e)
{
	struct reply reply;

	base_strcpy(c->actor, sizeof(c->actor), "system");
	c->admin = true;
	return engine_call(d->engine, c, CALL_MS, &reply, e);
}

/* The default tenant's id, looked up by its name. */
static int daemon_tenant_row(void *ctx, const void *key, size_t key_len,
			     const void *value, size_t len)
{
	struct daemon *d = ctx;
	SCOPED_JSON json_t *row = NULL;
	const char *name;
	struct err e;

	if (key_len != ID_LEN || json_parse(&row, value, len, &e) < 0 ||
	    json_get_str(row, "name", &name, &e) < 0 ||
	    strcmp(name, DEFAULT_TENANT) != 0)
		return 0;
	memcpy(d->tenant, key, ID_LEN);
	return 1;
}

static int daemon_tenant(struct daemon *d, struct err *e)
{
	struct command *c;
	struct id id;
	void *view;
	int r = d->views.open(d->views.ctx, &view, e);

	if (r < 0)
		return r;
	r = d->views.ops->scan(view, TABLE_TENANTS, NULL, 0, NULL, 0, false,
			       daemon_tenant_row, d, e);
	d->views.close(view);
	if (r < 0 || d->tenant[0])
		return MIN(r, 0);
	id_new(&id);
	memcpy(d->tenant, id.s, sizeof(d->tenant));
	c = command_new(COMMAND_TENANT_CREATE);
	memcpy(c->id, id.s, sizeof(c->id));
	base_strcpy(c->name, sizeof(c->name), DEFAULT_TENANT);
	return daemon_call(d, c, e);
}

/* --- templates ------------------------------------------------------------------------------ */

static int daemon_template_add(void *ctx, const char *digest,
			       const char *actor UNUSED, struct err *e)
{
	struct daemon *d = ctx;
	json_t *info = NULL;
	struct command *c;
	const char *name;
	int r = host_template_check(&d->host, digest, &info, e);

	if (r == 0)
		r = json_get_str(info, "name", &name, e);
	if (r < 0) {
		json_decref(info);
		return r;
	}
	c = command_new(COMMAND_TEMPLATE_ADD);
	base_strcpy(c->spec.template, sizeof(c->spec.template), name);
	base_strcpy(c->digest, sizeof(c->digest), digest);
	c->info = info;
	return daemon_call(d, c, e);
}

/* The digest that the log knows for this folder's template, is it this one? */
static bool daemon_template_known(struct daemon *d, const char *digest)
{
	SCOPED_JSON json_t *info = NULL;
	SCOPED_JSON json_t *row = NULL;
	const char *name, *have = "";
	struct err e;
	void *view;
	int r;

	if (host_template_describe(&d->host, digest, &info, &e) < 0 ||
	    json_get_str(info, "name", &name, &e) < 0 ||
	    d->views.open(d->views.ctx, &view, &e) < 0)
		return false;
	{
		struct reader rd = { d->views.ops, view };

		r = rows_json(&rd, TABLE_TEMPLATES, name, strlen(name), &row, &e);
	}
	d->views.close(view);
	return r == 0 && json_get_str(row, "digest", &have, &e) == 0 &&
	       !strcmp(have, digest);
}

static void daemon_template_found(void *ctx, const char *digest)
{
	struct daemon *d = ctx;
	struct err e;

	if (daemon_template_known(d, digest))
		return;
	if (daemon_template_add(d, digest, "system", &e) < 0)
		log_warn("event=template_refused digest=%s why=\"%s\"", digest,
			 e.msg);
	else
		log_info("event=template_added digest=%s", digest);
}

/* --- the door --------------------------------------------------------------------------------- */

static int daemon_listen(struct daemon *d, struct err *e)
{
	char path[PATH_MAX];
	int r;

	snprintf(path, sizeof(path), "%s/run/api.sock", d->opt.data);
	r = listen_unix(path, &d->unix_fd, e);
	if (r < 0 || !d->opt.listen)
		return r;
	r = listen_addr_parse(&d->addr, d->opt.listen, e);
	if (r == 0)
		r = listen_tcp(&d->addr, d->opt.insecure_plain, &d->tcp_fd, e);
	snprintf(d->host_name, sizeof(d->host_name),
		 d->addr.ipv6 ? "[%s]:%u" : "%s:%u", d->addr.host, d->addr.port);
	return r;
}

static int daemon_door(struct daemon *d, struct err *e)
{
	bool kvm = qemu_backend(d->qemu)->caps.isolation == ISOLATION_VM;
	struct api_conf c = {
		.engine = engine_port_of(d->engine),
		.view = d->views,
		.templates = { .ctx = d, .add = daemon_template_add },
		.clock = &clock_real,
		.sha256 = crypt_sha256,
		.node = { .version = CRYO_VERSION,
			  .backend = "qemu",
			  .accel = kvm ? "kvm" : "tcg",
			  .isolation =
				  kvm ? "hardware virtualisation"
				      : "emulation (TCG): not a security boundary between tenants",
			  .boot_id = d->boot_id,
			  .data_dir = d->opt.data_name },
		.owner_uid = geteuid(),
		.default_tenant = d->tenant,
		.listeners = { { .fd = d->unix_fd, .local = true },
			       { .fd = d->tcp_fd, .host = d->host_name } },
		.nr_listeners = d->tcp_fd >= 0 ? 2 : 1,
	};

	d->calls = (struct sandbox_calls){ .qemu = d->qemu,
					   .output = d->output,
					   .views = &d->views };
	sandbox_port_init(&c.sandbox, &d->calls);
	return api_start(&d->api, &c, e);
}

int daemon_start(struct daemon *d, const struct daemon_options *o, struct err *e)
{
	struct engine_conf c = { 0 };
	int r;

	*d = (struct daemon){ .opt = *o, .unix_fd = -1, .tcp_fd = -1 };
	r = daemon_boot_id(d, c.boot_id, e);
	if (r == 0)
		r = daemon_store(d, e);
	if (r == 0)
		r = daemon_driver(d, e);
	/* before anybody can speak to us, and before sandboxes are asked */
	if (r == 0)
		r = daemon_listen(d, e);
	if (r == 0)
		r = seccomp_apply(SECCOMP_CRYOD, e);
	if (r == 0)
		r = daemon_engine(d, &c, e);
	if (r == 0)
		r = daemon_tenant(d, e);
	if (r == 0)
		r = host_templates(&d->host, daemon_template_found, d, e);
	return r == 0 ? daemon_door(d, e) : r;
}

void daemon_tick(struct daemon *d)
{
	struct err e;

	keys_expire(d->keys);
	/* given back when the disk was full; taken again when it isn't */
	if (datadir_ballast_ensure(d->opt.data, DATADIR_BALLAST, &e) < 0)
		log_warn("event=no_ballast why=\"%s\"", e.msg);
}

void daemon_stop(struct daemon *d)
{
	api_stop(d->api);
	qemu_stop(d->qemu);
	engine_free(d->engine);
	qemu_free(d->qemu);
	helper_client_free(d->helper);
	output_free(d->output);
	evlog_close(d->log);
	keys_close(d->keys);
	base_close_p(&d->unix_fd);
	base_close_p(&d->tcp_fd);
}
