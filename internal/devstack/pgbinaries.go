package devstack

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// errNoPostgres tells a person what to do.
var errNoPostgres = errors.New("devstack: no Postgres server found: initdb and postgres are neither on PATH nor where packages put them.\n" +
	"  Debian, Ubuntu:  apt-get install postgresql\n" +
	"  macOS:           brew install postgresql@17\n" +
	"  or use a server that runs: set DEADLETTER_DATABASE_URL")

// postgresFolders are where packages put the server's binaries, off PATH.
var postgresFolders = []string{
	"/usr/lib/postgresql/*/bin",         // Debian and its family
	"/usr/pgsql-*/bin",                  // Red Hat and its family
	"/opt/homebrew/opt/postgresql*/bin", // Homebrew, Apple silicon
	"/usr/local/opt/postgresql*/bin",    // Homebrew, Intel
}

// findPostgres returns the folder that holds initdb and postgres: the one on
// PATH, else in order of the globs the one with the highest version, else what
// pg_config says.
func findPostgres(globs []string) (string, error) {
	if path, err := exec.LookPath("postgres"); err == nil {
		// A link from a folder on PATH: initdb looks for its files beside the
		// binary, so what counts is where the link leads.
		if resolved, err := filepath.EvalSymlinks(path); err == nil && hasPostgres(filepath.Dir(resolved)) {
			return filepath.Abs(filepath.Dir(resolved))
		}
	}
	for _, glob := range globs {
		folders, err := filepath.Glob(glob)
		if err != nil {
			return "", err
		}
		slices.SortFunc(folders, func(a, b string) int { return cmp.Compare(versionIn(b), versionIn(a)) })
		if i := slices.IndexFunc(folders, hasPostgres); i >= 0 {
			return folders[i], nil
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		if folder := strings.TrimSpace(string(out)); hasPostgres(folder) {
			return folder, nil
		}
	}
	return "", errNoPostgres
}

// hasPostgres reports whether the folder holds both binaries.
func hasPostgres(folder string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if !isExecutable(filepath.Join(folder, name)) {
			return false
		}
	}
	return true
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}

var versionPattern = regexp.MustCompile(`\d+(\.\d+)?`)

// versionIn returns the last number in a path: 9.6 < 15 < 17. A path without one
// is Homebrew's plain "postgresql": an old link, so it sorts last.
func versionIn(path string) float64 {
	numbers := versionPattern.FindAllString(path, -1)
	if len(numbers) == 0 {
		return 0
	}
	version, _ := strconv.ParseFloat(numbers[len(numbers)-1], 64)
	return version
}
