package devstack

// Lookups that the machine's own packages would decide.
var (
	FindPostgres  = findPostgres
	ErrNoPostgres = errNoPostgres
)
