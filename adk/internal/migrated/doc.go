// Package migrated holds tests alone: databases that ADK's own services wrote, and exports of
// its REST server, are migrated, and read again by package adk.
package migrated
