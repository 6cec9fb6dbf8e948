package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// temporalVersion is the release of the Temporal CLI that is built when the
// machine has none. Its dev server is the one the tests are known to pass on.
const temporalVersion = "v1.5.1"

// TemporalCLI returns the path of a Temporal CLI. It takes the first of:
//
//   - TEMPORAL_CLI_PATH; an error if that names no executable file,
//   - `temporal` on PATH,
//   - the one that an earlier call built,
//   - `temporal` where `go install` puts binaries,
//   - a new build of 1.5.1 by `go install`, kept for the next call.
//
// It downloads no ready-made binary. The build takes minutes and says so on log,
// which may be nil. Calls in any number of processes share one build.
func TemporalCLI(ctx context.Context, log io.Writer) (string, error) {
	if path := os.Getenv("TEMPORAL_CLI_PATH"); path != "" {
		if !isExecutable(path) {
			return "", fmt.Errorf("devstack: TEMPORAL_CLI_PATH: %s is no executable file", path)
		}
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath("temporal"); err == nil {
		return filepath.Abs(path)
	}
	cache, err := cacheFolder()
	if err != nil {
		return "", err
	}
	built := filepath.Join(cache, "temporal-"+temporalVersion)
	for _, path := range append([]string{built}, goInstalled("temporal")...) {
		if isExecutable(path) {
			return path, nil
		}
	}
	return built, buildTemporalOnce(ctx, log, built)
}

// goInstalled returns where `go install` may have put a binary.
func goInstalled(name string) []string {
	folders := filepath.SplitList(os.Getenv("GOPATH"))
	if home, err := os.UserHomeDir(); err == nil && len(folders) == 0 {
		folders = []string{filepath.Join(home, "go")}
	}
	var paths []string
	if folder := os.Getenv("GOBIN"); folder != "" {
		paths = append(paths, filepath.Join(folder, name))
	}
	for _, folder := range folders {
		paths = append(paths, filepath.Join(folder, "bin", name))
	}
	return paths
}

// cacheFolder returns a folder that lasts and that we can write: in the user's
// cache, else in the system's temporary folder.
func cacheFolder() (string, error) {
	if user, err := os.UserCacheDir(); err == nil {
		cache := filepath.Join(user, "deadletter")
		if err := os.MkdirAll(cache, 0o755); err == nil && writable(cache) {
			return cache, nil
		}
	}
	cache := filepath.Join(os.TempDir(), fmt.Sprintf("deadletter-cache-%d", os.Geteuid()))
	if err := os.Mkdir(cache, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("devstack: make a cache folder: %w", err)
	}
	// Anybody may make that folder, and we run what it holds.
	info, err := os.Lstat(cache)
	if err != nil {
		return "", fmt.Errorf("devstack: cache folder: %w", err)
	}
	if !ownedByUs(info) {
		return "", fmt.Errorf("devstack: cache folder %s belongs to somebody else, or others may write to it; remove it or set TEMPORAL_CLI_PATH", cache)
	}
	return cache, nil
}

func writable(folder string) bool {
	file, err := os.CreateTemp(folder, ".writable-")
	if err != nil {
		return false
	}
	_ = file.Close()
	return os.Remove(file.Name()) == nil
}
