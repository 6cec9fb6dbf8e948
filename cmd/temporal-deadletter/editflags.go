package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/deadletter-dev/deadletter/job"
	"github.com/deadletter-dev/deadletter/operator"
)

// editFlags say what one edit changes.
type editFlags struct {
	key       keyFlags
	actor     actorFlag
	requestID string

	arguments, mergePatch, jsonPatch string
	argument                         []string
	editor                           bool
	queue, policy, priority          string
	tags, untag                      []string

	revision, revert int
	toOriginal       bool
	replay           bool
	dryRun, yes      bool

	changed func(flag string) bool
}

func (e *editFlags) add(cmd *cobra.Command) {
	e.key.add(cmd)
	e.actor.add(cmd)
	e.changed = cmd.Flags().Changed
	flags := cmd.Flags()
	flags.StringVar(&e.arguments, "args", "", "all arguments, as a JSON array")
	flags.StringArrayVar(&e.argument, "arg", nil, "one argument as N=JSON, N from 0; may be repeated")
	flags.StringVar(&e.mergePatch, "merge-patch", "", "JSON merge patch (RFC 7386) of the one argument, or an array of patches, one per argument")
	flags.StringVar(&e.jsonPatch, "json-patch", "", "JSON patch (RFC 6902) of the array of arguments")
	flags.BoolVar(&e.editor, "editor", false, "open the arguments in $VISUAL or $EDITOR")
	flags.StringVar(&e.queue, "queue", "", "task queue of the handler")
	flags.StringVar(&e.policy, "policy", "", "JSON merge patch of the retry policy; null takes a default")
	flags.StringVar(&e.priority, "priority", "", "priority key, 1 (first) to 5, or a JSON merge patch of the priority")
	flags.StringArrayVar(&e.tags, "tag", nil, "set a tag, key=value; may be repeated")
	flags.StringArrayVar(&e.untag, "untag", nil, "remove a tag; may be repeated")
	flags.IntVar(&e.revert, "revert", 0, "start from this earlier revision")
	flags.BoolVar(&e.toOriginal, "to-original", false, "start from the original, which is --revert 1")
	flags.IntVar(&e.revision, "revision", 0, "revision that the edit is of; a newer one is a conflict (default: the newest)")
	flags.BoolVar(&e.replay, "replay", false, "replay it too, in one step")
	flags.BoolVar(&e.dryRun, "dry-run", false, "show what would change, and change nothing")
	flags.StringVar(&e.requestID, "request-id", "", "makes the request repeatable: the same id means the same edit and the same new job (default: a fresh id)")
	flags.BoolVarP(&e.yes, "yes", "y", false, "with --replay: do not ask about a job that succeeded after all")
}

// request reads the flags.
func (e *editFlags) request() (request operator.EditRequest, err error) {
	request = operator.EditRequest{Revision: e.revision, RevertTo: e.revert, Replay: e.replay, RequestID: e.requestID}
	for _, flag := range []string{"args", "merge-patch", "json-patch", "queue", "policy", "priority"} {
		if value := e.value(flag); e.changed(flag) && value == "" {
			return request, usagef("--%s has an empty value; leave the flag out to change nothing", flag)
		}
	}
	switch {
	case e.changed("revision") && e.revision < 1:
		return request, usagef("--revision: %d is no revision; they count from 1", e.revision)
	case e.changed("revert") && e.revert < 1:
		return request, usagef("--revert: %d is no revision; they count from 1, the original", e.revert)
	case e.toOriginal && e.revert > 1:
		return request, usagef("--to-original is --revert 1, and --revert %d is given too", e.revert)
	case e.dryRun && (e.replay || e.toOriginal || e.revert > 0):
		return request, usagef("--dry-run shows an edit of the newest revision alone: leave out --replay, --revert and --to-original")
	}
	if e.toOriginal {
		request.RevertTo = 1
	}
	if request.Edit, err = e.edit(); err != nil {
		return request, err
	}
	ways := 0
	for _, given := range []bool{e.arguments != "", len(e.argument) > 0, e.mergePatch != "", e.jsonPatch != "", e.editor} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return request, usagef("--args, --arg, --merge-patch, --json-patch and --editor change the arguments: give one of them")
	case request.Edit.IsEmpty() && !e.editor && request.RevertTo == 0:
		return request, usagef("say what to change: --merge-patch, --json-patch, --args, --arg, --editor, --queue, --policy, --priority, --tag, --untag or --revert; see `%s edit --help`", name)
	}
	if err := request.Edit.Validate(); err != nil {
		return request, usageError{err}
	}
	return request, nil
}

func (e *editFlags) value(flag string) string {
	return map[string]string{
		"args": e.arguments, "merge-patch": e.mergePatch, "json-patch": e.jsonPatch, "queue": e.queue, "policy": e.policy, "priority": e.priority,
	}[flag]
}

func (e *editFlags) edit() (edit job.Edit, err error) {
	edit.TaskQueue = e.queue
	for _, given := range []struct {
		flag, value string
		into        *json.RawMessage
	}{
		{"args", e.arguments, &edit.Arguments},
		{"merge-patch", e.mergePatch, &edit.MergePatch},
		{"json-patch", e.jsonPatch, &edit.JSONPatch},
		{"policy", e.policy, &edit.Policy},
		{"priority", e.priority, &edit.Priority},
	} {
		if given.value == "" {
			continue
		}
		if *given.into, err = textOf(given.flag, given.value); err != nil {
			return edit, err
		}
	}
	if key, err := strconv.Atoi(e.priority); err == nil {
		edit.Priority = json.RawMessage(fmt.Sprintf(`{"priority_key":%d}`, key))
	}
	for _, argument := range e.argument {
		number, value, _ := strings.Cut(argument, "=")
		place, err := strconv.Atoi(number)
		if err != nil || value == "" {
			return edit, usagef("--arg: %q does not look like N=JSON, with N from 0", shortened(argument, maxErrorCell))
		}
		if edit.Argument == nil {
			edit.Argument = map[int]json.RawMessage{}
		}
		if _, twice := edit.Argument[place]; twice {
			return edit, usagef("--arg: argument %d is given twice", place)
		}
		if edit.Argument[place], err = textOf("arg", value); err != nil {
			return edit, err
		}
	}
	edit.Tags, err = e.tagChanges()
	return edit, err
}

func (e *editFlags) tagChanges() (map[string]*string, error) {
	changes := map[string]*string{}
	for _, tag := range e.tags {
		key, value, ok := strings.Cut(tag, "=")
		if !ok || key == "" {
			return nil, usagef("--tag: %q does not look like key=value", tag)
		}
		if _, twice := changes[key]; twice {
			return nil, usagef("--tag: %s is given twice", key)
		}
		changes[key] = &value
	}
	for _, key := range e.untag {
		if _, twice := changes[key]; twice || key == "" {
			return nil, usagef("--untag: %q is no tag to remove here", key)
		}
		changes[key] = nil
	}
	return changes, nil
}

// textOf is a flag's value, or what is in FILE when it is @FILE: no JSON begins
// with that.
func textOf(flag, value string) (json.RawMessage, error) {
	path, isFile := strings.CutPrefix(value, "@")
	if !isFile {
		return json.RawMessage(value), nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, usagef("--%s: %w", flag, err)
	}
	defer func() { _ = file.Close() }()
	text, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, usagef("--%s: %w", flag, err)
	case len(text) > maxFile:
		return nil, usagef("--%s: %s has more than %d bytes, which is more than a job can carry", flag, path, maxFile)
	}
	return text, nil
}

// maxFile bounds what is read of a file, which may be a device: Temporal takes no
// larger message.
const maxFile = 4 << 20
