// Package hostile feeds malicious input to all code that reads bytes, text, files, command lines or requests. No
// input may cause a panic or an endless call. Errors must have their documented types. Readers must not change
// anything. Memory must stay below 8 times the size of the input plus 32 MiB. The package has only tests. This
// command runs each fuzz target for an hour, and saves interesting inputs for the next run:
//
//	make fuzz FUZZTIME=1h
package hostile
