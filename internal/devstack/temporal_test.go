package devstack_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/internal/devstack"
)

// TestTemporalInParallel proves that servers which start at the same time get
// ports of their own, every one of them ready.
func TestTemporalInParallel(t *testing.T) {
	t.Parallel()
	const servers = 3
	addresses := make(chan string, servers)
	errs := make(chan error, servers)
	var all sync.WaitGroup
	for range servers {
		all.Go(func() {
			server, err := devstack.StartTemporal(t.Context(), devstack.TemporalOptions{UI: true})
			errs <- err
			if err == nil {
				addresses <- server.Address
				t.Cleanup(func() { _ = server.Stop() })
			}
		})
	}
	all.Wait()
	close(addresses)
	for range servers {
		require.NoError(t, <-errs)
	}
	seen := map[string]bool{}
	for address := range addresses {
		seen[address] = true
	}
	require.Len(t, seen, servers)
}

// TestTemporalPortTaken proves that a UI port which is not free is an error that
// names it, in the words of the server.
func TestTemporalPortTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	_, err = devstack.StartTemporal(t.Context(), devstack.TemporalOptions{UI: true, UIPort: port})
	require.ErrorContains(t, err, fmt.Sprintf("UI port %d", port))
}

// TestTemporalCLIOrder proves where the binary is looked for, and in what order.
func TestTemporalCLIOrder(t *testing.T) {
	all := []string{"env/temporal", "path/temporal", "cache/deadletter/temporal-v1.5.1", "gobin/temporal", "gopath/bin/temporal", "home/go/bin/temporal"}
	for i, want := range all {
		t.Run(want, func(t *testing.T) {
			root := cliFolders(t)
			for _, path := range all[i:] {
				script(t, filepath.Join(root, path), "")
			}
			if i == 0 {
				t.Setenv("TEMPORAL_CLI_PATH", filepath.Join(root, want))
			}
			if strings.HasPrefix(want, "home/") {
				t.Setenv("GOPATH", "")
			}
			got, err := devstack.TemporalCLI(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, filepath.Join(root, want), got)
		})
	}
}

// cliFolders points every place where a CLI may be to empty folders below one,
// which it returns.
func cliFolders(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	t.Setenv("TEMPORAL_CLI_PATH", "")
	for name, folder := range map[string]string{
		"PATH": "path", "XDG_CACHE_HOME": "cache", "GOBIN": "gobin", "GOPATH": "gopath", "HOME": "home", "TMPDIR": "tmp",
	} {
		path := filepath.Join(root, folder)
		require.NoError(t, os.Mkdir(path, 0o755))
		t.Setenv(name, path)
	}
	return root
}

// TestTemporalCLIMissing proves that a wrong TEMPORAL_CLI_PATH is an error and no
// reason to look elsewhere, and that without a Go toolchain the error says what
// to do.
func TestTemporalCLIMissing(t *testing.T) {
	root := cliFolders(t)
	_, err := devstack.TemporalCLI(t.Context(), nil)
	require.ErrorContains(t, err, "TEMPORAL_CLI_PATH")
	require.ErrorContains(t, err, "none is downloaded")

	script(t, filepath.Join(root, "path/temporal"), "")
	t.Setenv("TEMPORAL_CLI_PATH", filepath.Join(root, "gone"))
	_, err = devstack.TemporalCLI(t.Context(), nil)
	require.ErrorContains(t, err, "gone is no executable file")
}

// TestTemporalCLIBuildsOnce proves that callers which need the binary at the same
// time share one build, that the build sees none of the settings which would
// send it elsewhere, and that nothing but the binary and its lock remains.
func TestTemporalCLIBuildsOnce(t *testing.T) {
	root := cliFolders(t)
	t.Setenv("GOFLAGS", "-mod=vendor -v")
	t.Setenv("GOOS", "plan9")
	// Stands for the Go tool. It waits until the test has seen the others wait.
	script(t, filepath.Join(root, "path/go"), `
echo "$* GOFLAGS=$GOFLAGS GOOS=$GOOS" >>`+root+`/calls
until [ -e `+root+`/others-wait ]; do /bin/sleep 0.05; done
/bin/cp "$0" "$GOBIN/temporal"`)

	const callers = 4
	var waiting atomic.Int32
	log := lines(func(line string) {
		if strings.Contains(line, "another process is building") && waiting.Add(1) == callers-1 {
			_ = os.WriteFile(filepath.Join(root, "others-wait"), nil, 0o600)
		}
	})
	var all sync.WaitGroup
	errs := make(chan error, callers)
	paths := make(chan string, callers)
	for range callers {
		all.Go(func() {
			path, err := devstack.TemporalCLI(t.Context(), log)
			errs <- err
			paths <- path
		})
	}
	all.Wait()
	for range callers {
		require.NoError(t, <-errs)
		require.Equal(t, filepath.Join(root, "cache/deadletter/temporal-v1.5.1"), <-paths)
	}
	calls, err := os.ReadFile(filepath.Join(root, "calls"))
	require.NoError(t, err)
	require.Equal(t, "install github.com/temporalio/cli/cmd/temporal@v1.5.1 GOFLAGS=-v GOOS=\n", string(calls))
	kept, err := filepath.Glob(filepath.Join(root, "cache/deadletter/*"))
	require.NoError(t, err)
	require.Len(t, kept, 2, "the binary and its lock: %v", kept)
}

// TestTemporalCLIBuildFails proves that a failed build reports what the Go tool
// said, leaves no binary, and that the next call tries again.
func TestTemporalCLIBuildFails(t *testing.T) {
	root := cliFolders(t)
	script(t, filepath.Join(root, "path/go"), "echo no network; exit 1")
	for range 2 {
		_, err := devstack.TemporalCLI(t.Context(), nil)
		require.ErrorContains(t, err, "no network")
		require.ErrorContains(t, err, "TEMPORAL_CLI_PATH")
	}
	script(t, filepath.Join(root, "path/go"), `/bin/cp "$0" "$GOBIN/temporal"`)
	_, err := devstack.TemporalCLI(t.Context(), nil)
	require.NoError(t, err)
}

// TestCacheFolder proves that without a cache folder the binary goes to one of
// ours in the temporary folder, and that one which others can write is refused,
// for we would run what they put there.
func TestCacheFolder(t *testing.T) {
	root := cliFolders(t)
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", "")
	script(t, filepath.Join(root, "path/go"), `/bin/cp "$0" "$GOBIN/temporal"`)
	path, err := devstack.TemporalCLI(t.Context(), nil)
	require.NoError(t, err)
	folder := filepath.Join(root, "tmp", fmt.Sprintf("deadletter-cache-%d", os.Geteuid()))
	require.Equal(t, filepath.Join(folder, "temporal-v1.5.1"), path)

	require.NoError(t, os.Chmod(folder, 0o777))
	_, err = devstack.TemporalCLI(t.Context(), nil)
	require.ErrorContains(t, err, "others may write to it")
}
