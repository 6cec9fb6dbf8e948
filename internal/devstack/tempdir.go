package devstack

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tempDir is the folder of one server. Its name holds our process id and it is
// locked for as long as we live: from both the next start sees whether the
// folder still has an owner.
type tempDir struct {
	path string
	lock *os.File
}

// newTempDir makes an empty folder in base for a server of the given kind that
// runs as the account, and first removes the folders of dead owners.
func newTempDir(base, kind string, as *account) (*tempDir, error) {
	sweep(base)
	path, err := os.MkdirTemp(base, fmt.Sprintf("deadletter-%s-%d-", kind, os.Getpid()))
	if err != nil {
		return nil, fmt.Errorf("devstack: make a temporary folder: %w", err)
	}
	lock, err := lockFolder(path)
	if err == nil && as != nil {
		err = os.Chown(path, int(as.uid), int(as.gid))
	}
	if err != nil {
		if lock != nil {
			lock.Close()
		}
		os.RemoveAll(path)
		return nil, fmt.Errorf("devstack: make a temporary folder: %w", err)
	}
	return &tempDir{path: path, lock: lock}, nil
}

// remove removes the folder. It tries for a while: a process that was killed may
// have children which write for a moment longer.
func (d *tempDir) remove() error {
	defer d.lock.Close()
	var err error
	for range 40 {
		if err = os.RemoveAll(d.path); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("devstack: remove temporary folder: %w", err)
}

// unprivilegedDir makes a temporary folder for a server that must not run as root, and
// returns the account for it, nil for our own.
func unprivilegedDir(name string) (*tempDir, *account, error) {
	as, err := unprivileged()
	if err != nil {
		return nil, nil, err
	}
	base, err := tempBase(as)
	if err != nil {
		return nil, nil, err
	}
	dir, err := newTempDir(base, name, as)
	return dir, as, err
}

// tempBase returns the folder for temporary folders: the system's, or /tmp when
// the account cannot reach that one because a parent is closed to it.
func tempBase(as *account) (string, error) {
	if as == nil {
		return os.TempDir(), nil
	}
	for _, base := range []string{os.TempDir(), "/tmp"} {
		if openToAll(base) {
			return base, nil
		}
	}
	return "", fmt.Errorf("devstack: postgres must run unprivileged but cannot reach the temporary folder %s; set TMPDIR to one that every account can enter", os.TempDir())
}

// openToAll reports whether every account may pass through path.
func openToAll(path string) bool {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return false
	}
	for ; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return false
		}
		if path == filepath.Dir(path) {
			return true
		}
	}
}

// sweep removes the folders in base whose owner is gone. The process id alone
// would not do: where containers share a /tmp, a live owner may have an id that
// means nothing here. Errors are somebody else's folder, and left alone.
func sweep(base string) {
	paths, _ := filepath.Glob(filepath.Join(base, "deadletter-*-*-*"))
	for _, path := range paths {
		fields := strings.Split(filepath.Base(path), "-")
		pid, err := strconv.Atoi(fields[2])
		if err != nil || pid <= 0 || alive(pid) {
			continue
		}
		if info, err := os.Lstat(path); err != nil || !info.IsDir() {
			continue
		}
		lock, err := lockFolder(path)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(path)
		lock.Close()
	}
}
