package dlqstore_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

// exported runs an export and returns its rows up to stop of them.
func exported(t *testing.T, store *dlqstore.Store, request dlqstore.ExportRequest, stop int) (rows []*dlqstore.DeadLetter) {
	t.Helper()
	for dl, err := range store.Export(t.Context(), request) {
		require.NoError(t, err)
		if rows = append(rows, dl); len(rows) == stop {
			break
		}
	}
	return rows
}

// TestExport proves that an export is the list, over any number of pages, in both
// orders, and complete when it is taken up from any row.
func TestExport(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	const total = 3000
	copyRows(t, store, total)
	for _, oldest := range []bool{false, true} {
		request := dlqstore.ExportRequest{OldestFirst: oldest}
		whole := exported(t, store, request, total+1)
		require.Len(t, whole, total)
		list, _, err := store.List(t.Context(), dlqstore.Filter{}, dlqstore.Page{Limit: 1000, OldestFirst: oldest})
		require.NoError(t, err)
		for i := range list {
			require.Equal(t, list[i], *whole[i])
		}
		for _, stop := range []int{1, 63, 64, 65, 1999, total - 1, total} {
			before := exported(t, store, request, stop)
			request := request
			request.Cursor, err = dlqstore.CursorAfter(before[len(before)-1], oldest)
			require.NoError(t, err)
			require.Equal(t, whole, append(before, exported(t, store, request, total)...))
		}
	}
	require.Len(t, exported(t, store, dlqstore.ExportRequest{Filter: dlqstore.Filter{Namespace: "other"}}, total), total/50)
}

// TestExportPayloads proves that the wire's bytes come when asked for, and that
// large ones end a page early without losing a row.
func TestExportPayloads(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	for i := range 12 {
		dl := letter(keyOf(fmt.Sprint("w", i)))
		dl.DeadAt, dl.Payloads = instant.Add(time.Duration(i)*time.Second), make([]byte, 3<<20)
		dl.Payloads[0] = byte(i)
		move(t, store, dl)
	}
	rows := exported(t, store, dlqstore.ExportRequest{WithPayloads: true, OldestFirst: true}, 100)
	require.Len(t, rows, 12)
	for i, row := range rows {
		require.Equal(t, byte(i), row.Payloads[0])
		require.Equal(t, []byte("memo"), row.Memo)
	}
	require.Nil(t, exported(t, store, dlqstore.ExportRequest{}, 1)[0].Payloads)
}

// TestExportFails proves that a fault ends the export with one error.
func TestExportFails(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	var failed []error
	for dl, err := range store.Export(t.Context(), dlqstore.ExportRequest{Cursor: "x"}) {
		require.Nil(t, dl)
		failed = append(failed, err)
	}
	require.Len(t, failed, 1)
	require.ErrorIs(t, errors.Join(failed...), dlqstore.ErrBadCursor)
}
