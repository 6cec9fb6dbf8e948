// Package jsonedit changes a JSON text where it is told to and nowhere else:
// spaces, the order of keys, escapes and the digits of numbers stay as they are.
//
// It takes the parser and the printer of hujson, whose tree keeps every byte, and
// strict JSON only. The operations are its own: hujson's may leave a comma behind
// a removed last element, take the first of two equal keys without a word, and
// compare numbers as float64.
//
// No error repeats a value of the document.
package jsonedit
