// Package hostile gives what comes from outside to everything that reads it: bytes, text, files,
// command lines and requests, made to do harm. Nothing panics or hangs, errors are what they
// should be, what only reads changes nothing, and memory is at most 8 times the input and 32
// MiB. Its tests are all it has; with the other fuzz targets, an hour each, and what was found on
// the way is kept for the next run:
//
//	make fuzz FUZZTIME=1h
package hostile
