package deadletter_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/deadletter-dev/deadletter"

// golist returns the lines that go list prints.
func golist(t *testing.T, args ...string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...).Output()
	require.NoError(t, err)
	return strings.Fields(string(out))
}

// TestImportRules proves that the arrows between packages point down only, that
// workflow code stays free of I/O, and that nothing outside tests imports testify
// by itself (the SDK's client does).
func TestImportRules(t *testing.T) {
	t.Parallel()
	forbidden := map[string][]string{
		"job":             {module + "/", "github.com/jackc", "go.temporal.io"},
		"workflows":       {module + "/dlqstore", module + "/activities", module + "/operator", "github.com/jackc"},
		"dlqstore":        {module + "/workflows", module + "/activities", module + "/operator", "go.temporal.io"},
		"internal/replay": {module + "/workflows", module + "/activities", module + "/operator"},
		"internal/edit":   {module + "/workflows", module + "/activities", module + "/operator"},
		"activities":      {module + "/workflows", module + "/operator", module + "/internal/devstack"},
		"operator":        {module + "/workflows", module + "/activities", module + "/internal/devstack"},
		".":               {module + "/operator", module + "/cmd", module + "/internal/devstack", "github.com/spf13/cobra"},
	}
	for pkg, prefixes := range forbidden {
		path := strings.TrimSuffix(module+"/"+pkg, "/.")
		for _, dep := range golist(t, "-deps", path) {
			for _, prefix := range prefixes {
				require.False(t, dep != path && strings.HasPrefix(dep, prefix), "%s must not depend on %s", pkg, dep)
			}
		}
	}
	for _, pkg := range golist(t, module+"/...") {
		imports := golist(t, "-f", `{{join .Imports " "}}`, pkg)
		if !strings.HasSuffix(pkg, "/devtest") {
			require.False(t, slices.ContainsFunc(imports, func(i string) bool { return strings.HasPrefix(i, "github.com/stretchr/testify") }), "%s imports testify", pkg)
		}
		if pkg == module+"/workflows" {
			// The SDK's interceptor package pulls it in; the workflow code must not use it.
			require.NotContains(t, imports, "go.temporal.io/sdk/client")
		}
		for _, main := range []string{"worker", "starter", "testsuite", "cmd/temporal-deadletter"} {
			require.NotContains(t, imports, module+"/"+main, pkg)
		}
	}
}

// TestWorkflowsAreDeterministic runs the SDK's own static checker.
func TestWorkflowsAreDeterministic(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "tool", "workflowcheck", "-config", "workflows/workflowcheck.yml", module+"/workflows").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
