//go:build !unix

package devstack

import (
	"errors"
	"os"
	"syscall"
)

// errLocked is never returned here.
var errLocked = errors.New("locked")

// errUnsupported is what every start returns.
var errUnsupported = errors.New("devstack: starting servers needs a Unix system; use servers that run elsewhere")

func unprivileged() (*account, error)        { return nil, errUnsupported }
func lockFile(string) (*os.File, error)      { return nil, errUnsupported }
func lockFolder(string) (*os.File, error)    { return nil, errUnsupported }
func detached(*account) *syscall.SysProcAttr { return nil }
func alive(int) bool                         { return true }
func ownedByUs(os.FileInfo) bool             { return true }
