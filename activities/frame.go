package activities

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// The forms in which the SDKs write a frame. A line of Go's names the function, the
// next one, indented, the file. Python writes the innermost frame last.
var (
	goFrame     = regexp.MustCompile(`(?m)^(\S.*)\([^()\n]*\)\n\t\S+:\d+`)
	pythonFrame = regexp.MustCompile(`(?m)^\s*File "([^"]+)", line \d+, in (.+)$`)
	// JavaScript: "at run (/app/x.js:1:2)" or "at /app/x.js:1:2"; the JVM:
	// "com.acme.X.run(X.java:1)", with or without "at"; .NET: "at Acme.X.Run(…) in /x.cs:line 1".
	atFrame  = regexp.MustCompile(`(?m)^\s*at (?:async )?(.+)$`)
	jvmFrame = regexp.MustCompile(`(?m)^\s*(?:at )?([\w.$/<>]+)\(([\w$]+\.(?:java|kt|scala|groovy)|Unknown Source|Native Method)(?::\d+)?\)`)
	atPlace  = regexp.MustCompile(`^(.*?)\s*\(?((?:file://|[A-Za-z]:\\|/|node:)[^()]*?)(?::(?:line )?\d+)*\)?$`)
)

// foreign begins the frames of language runtimes, Temporal's SDKs and this plugin;
// foreignFiles are in the names of their files.
var (
	foreign = []string{
		"runtime.", "runtime/", "reflect.", "internal/", "sync.", "testing.",
		"go.temporal.io/sdk/", "go.temporal.io/api/",
		"github.com/deadletter-dev/deadletter.", "github.com/deadletter-dev/deadletter/activities.", "github.com/deadletter-dev/deadletter/workflows.",
		"java.", "java.base/", "javax.", "jdk.", "sun.", "kotlin.", "io.temporal.", "io.grpc.",
		"System.", "Microsoft.", "Temporalio.", "new Promise", "process.", "Promise.",
	}
	foreignFiles = []string{"node:", "@temporalio/", "/temporalio/", "/asyncio/", "/concurrent/futures/", "/threading.py", "<frozen ", "<anonymous>"}
)

// firstFrame returns the innermost frame of a stack that is the application's own, as
// its function and the name of its file where the language tells that beside it,
// without the line. It is empty when there is none, or the form is not known.
func firstFrame(stack string) string {
	for _, f := range frames(stack) {
		if !f.isApplication() {
			continue
		}
		if f.file == "" {
			return f.function
		}
		return strings.TrimSpace(f.function + " " + path.Base(strings.ReplaceAll(f.file, `\`, "/")))
	}
	return ""
}

type frame struct{ function, file string }

func (f frame) isApplication() bool {
	return f.function != "panic" && !slices.ContainsFunc(foreign, func(prefix string) bool { return strings.HasPrefix(f.function, prefix) }) &&
		!slices.ContainsFunc(foreignFiles, func(part string) bool { return strings.Contains(f.file, part) })
}

// frames returns the frames of a stack, the innermost first.
func frames(stack string) []frame {
	var all []frame
	switch {
	case goFrame.MatchString(stack):
		for _, match := range goFrame.FindAllStringSubmatch(stack, -1) {
			all = append(all, frame{function: match[1]})
		}
	case pythonFrame.MatchString(stack):
		for _, match := range slices.Backward(pythonFrame.FindAllStringSubmatch(stack, -1)) {
			all = append(all, frame{function: match[2], file: match[1]})
		}
	case jvmFrame.MatchString(stack):
		for _, match := range jvmFrame.FindAllStringSubmatch(stack, -1) {
			all = append(all, frame{function: match[1], file: match[2]})
		}
	default:
		for _, match := range atFrame.FindAllStringSubmatch(stack, -1) {
			f := frame{function: match[1]}
			if at := atPlace.FindStringSubmatch(match[1]); at != nil {
				f = frame{function: at[1], file: at[2]}
			} else if strings.Contains(match[1], "<anonymous>") {
				f.file = "<anonymous>" // built into the language
			}
			f.function, _, _ = strings.Cut(f.function, "(") // of .NET, with types
			f.function = strings.TrimSpace(f.function)
			all = append(all, f)
		}
	}
	return all
}
