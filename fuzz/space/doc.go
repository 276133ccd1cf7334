// Package space tests what a store in a file does to the room and the time of others. A reader
// that stalls, for as long as it likes, keeps no page of the file from being used again. A verify
// and a backup keep no append waiting, wherever they are. After all that there is to do has been
// done to it for long, a file is at most twice as long as what is live in it once it is vacuumed,
// verify and backups find nothing wrong, and neither goroutines nor memory have grown.
//
//	go test ./fuzz/space -timeout 0 -rounds 50 -v
package space
