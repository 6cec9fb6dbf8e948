package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

const (
	formatJSONL = "jsonl"
	formatCSV   = "csv"
	// flushEvery is how many rows may be in the program's hands.
	flushEvery = 1000
	// tellEvery is how many rows go by between two lines with a cursor.
	tellEvery = 100_000
)

// export is what the flags of one export say.
type export struct {
	filters filterFlags
	request dlqstore.ExportRequest
	format  string
	raw     bool
}

func (c *cli) exportCommand() *cobra.Command {
	var e export
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write all dead letters that match as JSON lines or CSV",
		Long: "Write all dead letters that match to standard output, the newest first, however many they\n" +
			"are: one object per line with the names of the columns, or CSV with a header, where JSON\n" +
			"columns are JSON and an unknown value is empty. It needs Postgres only.\n\n" +
			"In CSV, a cell that a spreadsheet would run as a formula gets an apostrophe in front, and\n" +
			"control characters are replaced; --raw leaves both as they are.\n\n" +
			"It says on standard error from which --cursor to go on: when it fails or is interrupted,\n" +
			"every 100000 rows, and at the end, for those that come later with --oldest-first. An export\n" +
			"that goes on repeats no row and no header. When it was the writing that failed, first cut\n" +
			"the output to as many rows as it says.",
		Example: "  " + name + " export --reason timeout > timeouts.jsonl\n" +
			"  " + name + " export --format csv --dead-after 24h > today.csv\n" +
			"  " + name + " export --oldest-first --cursor eyJ2Ij… >> all.jsonl",
		RunE: func(cmd *cobra.Command, _ []string) error { return c.export(cmd.Context(), &e) },
	}
	e.filters.add(cmd)
	cmd.Flags().StringVar(&e.format, "format", formatJSONL, "jsonl or csv")
	cmd.Flags().Var(cursorFlag{&e.request.Cursor}, "cursor", "where to go on, as the export before said")
	cmd.Flags().BoolVar(&e.request.OldestFirst, "oldest-first", false, "turn the order around")
	cmd.Flags().BoolVar(&e.raw, "raw", false, "CSV cells exactly as they are, also those that a spreadsheet would run as a formula")
	cmd.Flags().BoolVar(&e.request.WithPayloads, "with-payloads", false, "also the wire's bytes, in base64 (jsonl only)")
	return cmd
}

func (c *cli) export(ctx context.Context, e *export) (err error) {
	if e.request.Filter, err = e.filters.filter(time.Now()); err != nil {
		return err
	}
	switch {
	case e.format != formatJSONL && e.format != formatCSV:
		return usagef("--format: %q is neither jsonl nor csv", e.format)
	case c.output == outputJSON:
		return usagef("export writes one object per line: pass -o jsonl, or --format csv")
	case c.output == outputJSONL && e.format == formatCSV:
		return usagef("export writes either -o jsonl or --format csv, not both")
	case e.raw && e.format != formatCSV:
		return usagef("--raw is for --format csv: JSON is always exact")
	case e.request.WithPayloads && e.format == formatCSV:
		return usagef("--with-payloads is for jsonl: CSV has the readable columns only")
	}
	store, config, err := c.openStore(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	e.request.Filter.Namespace = config.Temporal.Namespace
	buffered := bufio.NewWriter(c.out)
	var rows rowWriter = newJSONRows(buffered, e.request.WithPayloads)
	if e.format == formatCSV {
		rows = newCSVRows(buffered, e.request.Cursor == "", e.raw)
	}
	return c.exportRows(ctx, store, e.request, rows, buffered)
}

// rowWriter writes dead letters in one form. flush hands on what it holds itself.
type rowWriter interface {
	write(dl *dlqstore.DeadLetter) error
	flush() error
}

func (c *cli) exportRows(ctx context.Context, store *dlqstore.Store, request dlqstore.ExportRequest, rows rowWriter, buffered *bufio.Writer) error {
	var written, safe int64
	var last *dlqstore.DeadLetter // of those that are safe, that is, handed to the system
	cursor := func() (string, error) {
		if last == nil {
			return request.Cursor, nil
		}
		return dlqstore.CursorAfter(last, request.OldestFirst)
	}
	flush := func(upTo *dlqstore.DeadLetter) error {
		if err := rows.flush(); err != nil {
			return ofExport(err)
		}
		if err := buffered.Flush(); err != nil {
			return ofExport(err)
		}
		last, safe = upTo, written
		return nil
	}
	var latest *dlqstore.DeadLetter
	var failed error
	for dl, err := range store.Export(ctx, request) {
		if err == nil {
			err = ofExport(rows.write(dl))
		}
		if err != nil {
			failed = err
			break
		}
		latest, written = dl, written+1
		if written%flushEvery != 0 {
			continue
		}
		if failed = flush(latest); failed != nil {
			break
		}
		if written%tellEvery == 0 {
			from, err := cursor()
			if err != nil {
				return err
			}
			fmt.Fprintf(c.errw, "%s: %s exported so far; to go on behind them: --cursor %s\n", name, counted(safe), from)
		}
	}
	if err := flush(latest); failed == nil { // also after a failure, for what came before it
		failed = err
	}
	from, err := cursor()
	switch {
	case err != nil:
		return err
	case errors.Is(failed, dlqstore.ErrBadCursor): // there is nothing to go on from
	case failed != nil && from == "":
		fmt.Fprintf(c.errw, "%s: nothing is exported\n", name)
	case failed != nil:
		fmt.Fprintf(c.errw, "%s: %s exported, and the rest is missing: go on with --cursor %s\n", name, counted(safe), from)
	case from == "":
		fmt.Fprintf(c.errw, "%s: no dead letters match\n", name)
	case request.OldestFirst:
		fmt.Fprintf(c.errw, "%s: %s exported; for those that come later: --cursor %s\n", name, counted(safe), from)
	default:
		fmt.Fprintf(c.errw, "%s: %s exported\n", name, counted(safe))
	}
	return failed
}

// ofExport says of a failure to write what the store says of its own.
func ofExport(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("export: %w", err)
}

type jsonRows struct {
	encoder      *json.Encoder
	withPayloads bool
}

func newJSONRows(w io.Writer, withPayloads bool) *jsonRows {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return &jsonRows{encoder, withPayloads}
}

// wireRow has the bytes that a dead letter's own JSON leaves out, in base64.
type wireRow struct {
	*dlqstore.DeadLetter
	Payloads             []byte `json:"payloads"`
	OptionsPayload       []byte `json:"options_payload"`
	Failure              []byte `json:"failure"`
	LastHeartbeatDetails []byte `json:"last_heartbeat_details"`
	Memo                 []byte `json:"memo"`
	SearchAttributes     []byte `json:"search_attributes"`
	Header               []byte `json:"header"`
	UserMetadata         []byte `json:"user_metadata"`
}

func (j *jsonRows) write(dl *dlqstore.DeadLetter) error {
	if !j.withPayloads {
		return j.encoder.Encode(dl)
	}
	return j.encoder.Encode(wireRow{
		dl, dl.Payloads, dl.OptionsPayload, dl.Failure, dl.LastHeartbeatDetails, dl.Memo, dl.SearchAttributes, dl.Header, dl.UserMetadata,
	})
}

func (*jsonRows) flush() error { return nil }
