package deadletter

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIDPrefix proves that a default id tells the type in ASCII, and stays short.
func TestIDPrefix(t *testing.T) {
	t.Parallel()
	for jobType, want := range map[string]string{
		"SendEmail": "SendEmail-", "": "", "отправить": "", "mail_v2.Send": "mail_v2.Send-", "Größe ändern!": "Gr-e-ndern-", "--a--": "a-", "a/b\x00c": "a-b-c-",
		strings.Repeat("x", 1000): strings.Repeat("x", 64) + "-",
	} {
		require.Equal(t, want, idPrefix(jobType), jobType)
	}
}
