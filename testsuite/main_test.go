package testsuite_test

import (
	"testing"

	"github.com/deadletter-dev/deadletter/internal/devstack/devtest"
)

func TestMain(m *testing.M) { devtest.Main(m) }
