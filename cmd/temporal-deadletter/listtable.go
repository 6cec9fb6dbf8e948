package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxLastCell is the most runes of a list's last cell, which pads nothing but may be
// megabytes of what somebody else has sent.
const maxLastCell = 1000

// listTable is table for a list, whose first row is its headings. On a terminal
// that is too narrow for it, the columns with the first headings come first, in
// that order, and each line is cut to the terminal's width. Elsewhere the output
// is table's, for whatever reads it.
func listTable(w io.Writer, rows [][]string, first ...string) error {
	rows = slices.Clone(rows)
	for i, row := range rows {
		last := len(row) - 1
		rows[i] = append(slices.Clone(row[:last]), shortened(row[last], maxLastCell))
	}
	columns, _ := sizeOf(w)
	if columns == 0 || len(rows) == 0 {
		return table(w, rows)
	}
	var lines bytes.Buffer
	if err := table(&lines, rows); err != nil {
		return err
	}
	if !fits(lines.String(), columns) && len(first) > 0 {
		lines.Reset()
		if err := table(&lines, reordered(rows, first)); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, cutLines(lines.String(), columns))
	return err
}

// sizeOf returns how many columns and rows a terminal has; zeros for what is none,
// or does not tell.
func sizeOf(stream any) (columns, rows int) {
	terminal, ok := stream.(interface{ Size() (columns, rows int) })
	if !ok {
		return 0, 0
	}
	return terminal.Size()
}

func fits(lines string, columns int) bool {
	for line := range strings.Lines(lines) {
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > columns {
			return false
		}
	}
	return true
}

// cutLines cuts each line to a count of runes; 0 means no limit.
func cutLines(lines string, columns int) string {
	if columns == 0 {
		return lines
	}
	var cut strings.Builder
	for line := range strings.Lines(lines) {
		fmt.Fprintln(&cut, shortened(strings.TrimSuffix(line, "\n"), columns))
	}
	return cut.String()
}

// reordered puts the columns with the named headings first. A row of one cell is a
// remark, and stays as it is.
func reordered(rows [][]string, first []string) [][]string {
	var order []int
	for _, heading := range first {
		if column := slices.Index(rows[0], heading); column >= 0 {
			order = append(order, column)
		}
	}
	for column := range rows[0] {
		if !slices.Contains(order, column) {
			order = append(order, column)
		}
	}
	moved := make([][]string, len(rows))
	for i, row := range rows {
		if len(row) == 1 {
			moved[i] = row
			continue
		}
		for _, column := range order {
			cell := ""
			if column < len(row) {
				cell = row[column]
			}
			moved[i] = append(moved[i], cell)
		}
	}
	return moved
}
