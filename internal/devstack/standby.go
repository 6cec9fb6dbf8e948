package devstack

import (
	"context"
	"fmt"
	"net/url"
)

// StartStandby starts a hot standby of the running server, with the same accounts and
// databases. It returns when the standby can be read, which may be before it has all
// that was committed meanwhile. It stays a standby until pg_promote is called in it.
// Stop it before the primary.
func (p *Postgres) StartStandby(ctx context.Context, opts PostgresOptions) (*Postgres, error) {
	primary, err := url.Parse(p.URL)
	if err != nil {
		return nil, fmt.Errorf("devstack: start a standby: %w", err)
	}
	password, _ := primary.User.Password()
	return startPostgres(ctx, opts, password, func(standby *Postgres) error {
		return standby.toEnd(ctx, "pg_basebackup", "--dbname="+p.URL, "--pgdata="+standby.data(),
			"--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	})
}
