package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// reportEvery is how often a wait of minutes says that it is still alive.
const reportEvery = 15 * time.Second

// buildTemporalOnce builds the CLI into the file at path, unless another process
// does so meanwhile: `go test` runs many at once.
func buildTemporalOnce(ctx context.Context, log io.Writer, path string) error {
	wait := time.NewTicker(100 * time.Millisecond)
	defer wait.Stop()
	report := time.NewTicker(reportEvery)
	defer report.Stop()
	began := time.Now()
	for said := false; ; {
		lock, err := lockFile(path + ".lock")
		if err == nil {
			defer lock.Close()
			if isExecutable(path) {
				return nil
			}
			return buildTemporal(ctx, log, path)
		}
		if !errors.Is(err, errLocked) {
			return fmt.Errorf("devstack: build the Temporal CLI: %w", err)
		}
		if !said {
			say(log, "another process is building the Temporal CLI into %s; waiting for it", path)
			said = true
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("devstack: wait for another build of the Temporal CLI: %w", context.Cause(ctx))
		case <-report.C:
			say(log, "still waiting for the other build of the Temporal CLI (%s)", time.Since(began).Round(time.Second))
		case <-wait.C:
		}
	}
}

// buildTemporal builds the CLI. The caller holds the lock.
func buildTemporal(ctx context.Context, log io.Writer, path string) error {
	compiler, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("devstack: no Temporal CLI found, and no Go toolchain to build one with (none is downloaded): "+
			"put temporal on PATH, or set TEMPORAL_CLI_PATH to its file, or use a server that runs (TEMPORAL_ADDRESS): %w", err)
	}
	// In the cache, so that the result moves into place in one step.
	dir, err := newTempDir(filepath.Dir(path), "build", nil)
	if err != nil {
		return err
	}
	defer func() { _ = dir.remove() }() // a later start sweeps what stays

	say(log, "no Temporal CLI on this machine (TEMPORAL_CLI_PATH, PATH, %s): building %s with `go install`", path, temporalVersion)
	say(log, "this takes some 6 minutes, once; to avoid it set TEMPORAL_CLI_PATH to a temporal binary, or TEMPORAL_ADDRESS to a server that runs")
	build, err := command{
		name: "go-install", path: compiler, args: []string{"install", "github.com/temporalio/cli/cmd/temporal@" + temporalVersion},
		env: buildEnv(os.Environ(), dir.path), dir: dir, stopSignal: "TERM",
	}.start()
	if err != nil {
		return err
	}
	report := time.NewTicker(reportEvery)
	defer report.Stop()
	for began := time.Now(); ; {
		select {
		case <-build.done:
			if build.err != nil {
				return fmt.Errorf("%w\nput temporal on PATH or set TEMPORAL_CLI_PATH to its file", build.ended())
			}
			if err := os.Rename(filepath.Join(dir.path, "temporal"), path); err != nil {
				return fmt.Errorf("devstack: keep the Temporal CLI: %w", err)
			}
			say(log, "built %s in %s", path, time.Since(began).Round(time.Second))
			return nil
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("devstack: build the Temporal CLI: %w", context.Cause(ctx)), build.stop("TERM"))
		case <-report.C:
			say(log, "still building the Temporal CLI (%s)", time.Since(began).Round(time.Second))
		}
	}
}

// buildEnv is our environment without what would make `go install` build
// something else or elsewhere, and with a home if there is none.
func buildEnv(environ []string, bin string) []string {
	env := slices.DeleteFunc(slices.Clone(environ), func(setting string) bool {
		name, _, _ := strings.Cut(setting, "=")
		return slices.Contains([]string{"GOBIN", "GOFLAGS", "GO111MODULE", "GOOS", "GOARCH"}, name)
	})
	var flags []string
	for _, flag := range strings.Fields(os.Getenv("GOFLAGS")) {
		if !strings.HasPrefix(flag, "-mod=") {
			flags = append(flags, flag)
		}
	}
	env = append(env, "GOBIN="+bin, "GOFLAGS="+strings.Join(flags, " "), "GO111MODULE=on")
	if home, err := os.UserHomeDir(); err != nil || !writable(home) {
		env = append(env, "HOME="+filepath.Dir(bin)) // go keeps its caches there
	}
	return env
}
