//go:build unix

package devstack

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// errLocked means that another process, or another part of this one, holds the
// lock.
var errLocked = errors.New("locked")

// lockFile locks the file at path, which it creates, without waiting. The lock
// lasts until the file is closed or we die, however we die.
func lockFile(path string) (*os.File, error) {
	return lock(path, os.O_CREATE|os.O_RDWR)
}

// lockFolder is lockFile for a folder, which must exist.
func lockFolder(path string) (*os.File, error) { return lock(path, os.O_RDONLY) }

func lock(path string, flag int) (*os.File, error) {
	file, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errLocked
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return file, nil
}

// alive reports whether a process with this id exists.
func alive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// ownedByUs reports whether nobody but us can put a file into the folder.
func ownedByUs(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == os.Geteuid() && info.IsDir() && info.Mode().Perm()&0o022 == 0
}
