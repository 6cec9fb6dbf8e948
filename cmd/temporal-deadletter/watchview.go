package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/deadletter-dev/deadletter/dlqstore"
)

const (
	// watchRows bounds each table of the view, on however high a terminal.
	watchRows = 20
	// watchHeight is that of a terminal that does not tell its own.
	watchHeight = 37
)

// watchPart is one table of the view: its headings, and rows of which some may be
// left out.
type watchPart struct {
	headings []string
	rows     [][]string
	shown    int // how many of the rows
	// more counts those that were not even read. Without counted nothing is said of
	// rows that are left out.
	more    int
	counted bool
	// newest: the last rows are the ones to keep.
	newest bool
}

// watchView is what there is to see: the counts, which are always shown, and below
// them whatever the terminal has place for.
type watchView struct {
	counts string
	trend  string
	parts  []watchPart
}

func readWatch(ctx context.Context, s *session) (*watchView, error) {
	stats, err := s.Stats(ctx)
	if err != nil {
		return nil, err
	}
	trend, err := s.Trend(ctx)
	if err != nil {
		return nil, err
	}
	var counts, words bytes.Buffer
	if err := printStats(&counts, stats); err != nil {
		return nil, err
	}
	if err := table(&words, trendRows(trend)); err != nil {
		return nil, err
	}
	view := &watchView{counts: counts.String(), trend: words.String()}
	hours := hourRows(trend.Hours)
	view.parts = append(view.parts, watchPart{headings: hours[0], rows: hours[1:], newest: true})
	for _, by := range []string{"reason", "type"} {
		tallies, more, err := s.StatsBy(ctx, dimensions[by], watchRows)
		if err != nil {
			return nil, err
		}
		rows := tallyRows(by, tallies)
		view.parts = append(view.parts, watchPart{headings: rows[0], rows: rows[1:], more: more, counted: true})
	}
	groups, more, err := s.Groups(ctx, dlqstore.Filter{}, watchRows)
	if err != nil {
		return nil, err
	}
	part := watchPart{headings: []string{"GROUP", "COUNT", "LAST DEAD AT", "TYPE", "ERROR"}, more: more, counted: true}
	for i := range groups {
		g := &groups[i]
		part.rows = append(part.rows, []string{printable(g.Fingerprint), fmt.Sprint(g.Count), timeText(&g.LastDeadAt), printable(g.JobType), groupError(g)})
	}
	view.parts = append(view.parts, part)
	return view, nil
}

// fitted writes the view below a heading, for a terminal of so many columns and
// rows; zeros mean that they are not known.
func (v *watchView) fitted(heading string, columns, rows int) (string, error) {
	if rows == 0 {
		rows = watchHeight
	}
	rows-- // the cursor stands below the view
	top := heading + "\n" + v.counts
	if strings.Count(top, "\n") > rows {
		top = v.counts // rather than a heading
	}
	left := max(rows-strings.Count(top, "\n"), 0)
	bottom := ""
	if trend := "\n" + v.trend; strings.Count(trend, "\n") <= left {
		parts, err := v.partsIn(left - strings.Count(trend, "\n"))
		if err != nil {
			return "", err
		}
		bottom = trend + parts
	}
	return cutLines(top+bottom, columns), nil
}

// partsIn writes the tables in at most so many lines: the longest one loses a row,
// of equal ones the first, until they fit. One without rows is left out, unless it
// has none at all.
func (v *watchView) partsIn(most int) (string, error) {
	parts := append([]watchPart(nil), v.parts...)
	height := 0
	for i := range parts {
		parts[i].shown = len(parts[i].rows)
		height += parts[i].height()
	}
	for height > most {
		longest := 0
		for i := range parts {
			if parts[i].height() > parts[longest].height() {
				longest = i
			}
		}
		part := &parts[longest]
		height -= part.height()
		part.shown-- // below zero it is left out as a whole
		height += part.height()
	}
	var lines bytes.Buffer
	for i := range parts {
		if parts[i].height() == 0 {
			continue
		}
		lines.WriteString("\n")
		if err := table(&lines, parts[i].lines()); err != nil {
			return "", err
		}
	}
	return lines.String(), nil
}

// height counts the lines of the part, with the empty one above it.
func (p *watchPart) height() int {
	if p.shown < 0 || p.shown == 0 && len(p.rows) > 0 {
		return 0
	}
	return 1 + len(p.lines())
}

func (p *watchPart) lines() [][]string {
	rows := p.rows[:p.shown]
	if p.newest {
		rows = p.rows[len(p.rows)-p.shown:]
	}
	lines := append([][]string{p.headings}, rows...)
	if more := p.more + len(p.rows) - p.shown; p.counted && more > 0 {
		lines = append(lines, []string{fmt.Sprintf("and %d more", more)})
	}
	return lines
}
