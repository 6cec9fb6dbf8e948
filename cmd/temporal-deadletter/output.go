package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode"
)

// output is a form of output: the value of --output.
type output string

const (
	outputText  output = "text"  // for people
	outputJSON  output = "json"  // one document
	outputJSONL output = "jsonl" // one object per line
)

// String, Set and Type make it a flag.
func (o *output) String() string { return string(*o) }

// Set refuses what is no form.
func (o *output) Set(text string) error {
	switch form := output(text); form {
	case outputText, outputJSON, outputJSONL:
		*o = form
		return nil
	default:
		return fmt.Errorf("%q is none of text, json, jsonl", text)
	}
}

// Type names the flag's value in the help.
func (*output) Type() string { return "form" }

// printJSON writes value as one document, or on one line for -o jsonl. Numbers
// inside raw JSON keep their digits.
func (c *cli) printJSON(value any) error {
	encoder := json.NewEncoder(c.out)
	encoder.SetEscapeHTML(false)
	if c.output == outputJSON {
		encoder.SetIndent("", "  ")
	}
	return encoder.Encode(value)
}

// maxCell is the most runes of a cell that another follows: longer ones would push the
// rest of every row out of sight. Job ids are mostly shorter; JSON output has them whole.
const maxCell = 100

// table aligns rows of cells in columns.
func table(w io.Writer, rows [][]string) error {
	var lines strings.Builder
	aligned := tabwriter.NewWriter(&lines, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cut := slices.Clone(row)
		for i := range len(cut) - 1 {
			cut[i] = shortened(cut[i], maxCell)
		}
		fmt.Fprintln(aligned, strings.Join(cut, "\t"))
	}
	if err := aligned.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(lines.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// isTerminal reports whether a stream says of itself that a person is at its end.
func isTerminal(stream any) bool {
	terminal, ok := stream.(interface{ IsTerminal() bool })
	return ok && terminal.IsTerminal()
}

// printable replaces what would act on a terminal instead of being shown: texts
// of jobs come from anywhere. Line ends and tabs become spaces.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case unicode.IsPrint(r):
			return r
		default:
			return unicode.ReplacementChar
		}
	}, text)
}

// printableLines is printable for a text of several lines.
func printableLines(text string) []string {
	var lines []string
	for line := range strings.Lines(strings.TrimRight(text, "\n")) {
		lines = append(lines, printable(strings.ReplaceAll(strings.TrimRight(line, "\r\n"), "\t", "    ")))
	}
	return lines
}

// shortened cuts a text to a count of runes.
func shortened(text string, limit int) string {
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return string(runes[:limit-1]) + "…"
}
