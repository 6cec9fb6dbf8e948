// Package edit works out what an edit makes of a dead letter: pure functions, for
// previews and for the store alike. What the edit does not touch stays byte for
// byte: other arguments with their metadata, and inside of an argument or of the
// options object everything but the touched values.
package edit
