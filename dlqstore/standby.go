package dlqstore

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// errStandby is of a server that takes no writes. It is ErrUnavailable: the primary
// answers at the same address before long, or another one does that the URL names.
var errStandby = errors.New("the server takes no writes: it is a standby")

// SQLSTATEs.
const (
	readOnlyTransaction = "25006"
	notSupported        = "0A000"
)

// ofStandby reports whether a write failed because the server is a standby.
func ofStandby(err error) bool {
	if errors.Is(err, errStandby) {
		return true
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == readOnlyTransaction
}

// refusedBegin tells what the error of a begin means. A standby refuses `read write`
// as not supported, and nothing else in a begin of ours can be that.
func refusedBegin(err error) error {
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == notSupported {
		return fmt.Errorf("%w: %w", errStandby, err)
	}
	return err
}

// isUnavailable reports whether a SQLSTATE says that the server cannot be reached or
// cannot serve now.
func isUnavailable(state string) bool {
	switch state {
	case "57P01", "57P02", "57P03", "57P05": // shutting down, crashed, starting up, session idle for too long
		return true
	}
	switch state[:min(2, len(state))] {
	case "08", "53": // connection exceptions, insufficient resources
		return true
	default:
		return false
	}
}

// preferPrimary has a URL of several servers lead to the one that takes writes, where
// the URL does not say what it wants with target_session_attrs. The first one that
// answers may be a standby for good.
func preferPrimary(config *pgxpool.Config) {
	to := &config.ConnConfig.Config
	if to.ValidateConnect != nil {
		return
	}
	for _, other := range to.Fallbacks { // the same server is there twice when TLS is tried
		if other.Host != to.Host || other.Port != to.Port {
			to.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
			return
		}
	}
}
