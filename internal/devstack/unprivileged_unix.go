//go:build unix

package devstack

import (
	"errors"
	"os"
	"os/user"
	"strconv"
)

// unprivileged returns the account that Postgres runs as: nil, meaning our own,
// unless we are root, which Postgres refuses.
func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		found, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if uidErr == nil && gidErr == nil && uid != 0 {
			return &account{uid: uint32(uid), gid: uint32(gid)}, nil
		}
	}
	return nil, errors.New("devstack: postgres cannot run as root, and there is no account named postgres or nobody to run it as")
}
