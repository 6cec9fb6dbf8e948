//go:build unix

package devstack

import "syscall"

// detached gives a child its own process group, so that a Ctrl-C in the terminal
// reaches us alone and we stop the servers in order.
func detached(as *account) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if as != nil {
		// No supplementary groups: those of root must not follow.
		attr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	return attr
}
