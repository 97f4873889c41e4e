/*
 * beside: the programs of one build lie in one folder, and find each other
 * by that, never by PATH: so a helper that runs as root is the one that was
 * built with this client.
 */
#include "tools/cryo/beside.h"

#include <limits.h>
#include <stdio.h>

#define BESIDE_DATA "/var/lib/cryo"

char *beside_path(const char *name)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	if (n < 0)
		return base_strdup(name);
	path[n] = 0;
	slash = strrchr(path, '/');
	if (slash)
		*slash = 0;
	return base_printf("%s/%s", path, name);
}

int beside_program(const char *name, char **ret, struct err *e)
{
	SCOPED_FREE char *path = beside_path(name);

	if (access(path, X_OK) < 0)
		return err_set(e, -errno, ERR_NOT_FOUND,
			       "%s can't be run (%s); build all programs into "
			       "one folder with `make`",
			       path, strerror(errno));
	*ret = STEAL(path);
	return 0;
}

char *beside_data(const char *given)
{
	const char *env = getenv("CRYO_DATA");
	char cwd[PATH_MAX];

	if (!given)
		given = env && *env ? env : BESIDE_DATA;
	if (given[0] == '/' || !getcwd(cwd, sizeof(cwd)))
		return base_strdup(given);
	return base_printf("%s/%s", cwd, given);
}
