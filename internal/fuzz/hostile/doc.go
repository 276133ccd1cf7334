// Package hostile feeds malicious input to every reader: bytes, text, files, command lines and requests.
// Nothing panics or hangs, errors have their documented types, readers change nothing, and memory is at
// most 8 times the input plus 32 MiB. The package has only tests. A run with all fuzz targets, an hour
// each, keeps interesting inputs for the next run:
//
//	make fuzz FUZZTIME=1h
package hostile
