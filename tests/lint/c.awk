# c.awk: put before a check's own rules. Sets `line` to the current line
# without comments, and with strings and characters emptied.
function say(what) {
	printf "%s:%d: %s\n", FILENAME, FNR, what
}
function strip(s,   out, c, two, i, n, quote) {
	n = length(s)
	for (i = 1; i <= n; i++) {
		c = substr(s, i, 1)
		two = substr(s, i, 2)
		if (in_comment) {
			if (two == "*/") {
				in_comment = 0
				i++
			}
		} else if (quote != "") {
			if (c == "\\")
				i++
			else if (c == quote) {
				quote = ""
				out = out c
			}
		} else if (two == "/*") {
			in_comment = 1
			i++
		} else if (two == "//") {
			break
		} else {
			if (c == "\"" || c == "'")
				quote = c
			out = out c
		}
	}
	return out
}
FNR == 1 { in_comment = 0 }
{ line = strip($0) }
