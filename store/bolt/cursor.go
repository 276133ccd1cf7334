package bolt

import (
	"bytes"
	"fmt"
	"sort"
)

// cursor walks through the rows of a tree in the file. It is what bbolt's cursor is, but that one
// takes memory without end where damage leads from a page back to itself. Where a page is not
// what it should be, its methods panic with an error, which [recoverDamage] returns.
type cursor struct {
	tree mapped
	way  []step // from the root to a leaf, once it has been placed
}

type step struct {
	node
	at int
}

func (m mapped) cursor() *cursor { return &cursor{tree: m} }

// must panics with what is wrong with a page.
func must[T any](t T, err error) T {
	if err != nil {
		panic(err)
	}
	return t
}

// First moves to the first row, and returns it, or nil if there is none. What it returns is
// not to be changed, and valid as long as the transaction; so too below.
func (c *cursor) First() (k, v []byte) {
	c.way = c.way[:0]
	c.down(must(c.tree.top()), func(node) int { return 0 })
	if c.leaf().count == 0 {
		return c.Next()
	}
	return c.row()
}

// Last moves to the last row.
func (c *cursor) Last() (k, v []byte) {
	c.way = c.way[:0]
	c.down(must(c.tree.top()), last)
	if c.leaf().count == 0 && len(c.way) > 1 {
		return c.Prev()
	}
	return c.row()
}

func last(n node) int { return n.count - 1 }

// Seek moves to a key, or to the next one if it is not there.
func (c *cursor) Seek(key []byte) (k, v []byte) {
	if c.place(key); c.leaf().at >= c.leaf().count {
		return c.Next()
	}
	return c.row()
}

// place goes down to the leaf that a key is in, if it is there, and to its place in it.
func (c *cursor) place(key []byte) {
	c.way = c.way[:0]
	c.down(must(c.tree.top()), func(n node) int {
		i, exact := sort.Find(n.count, func(i int) int { return bytes.Compare(key, must(n.key(i))) })
		if !n.leaf && !exact && i > 0 {
			i--
		}
		return i
	})
}

// bounds are what the branches say of the keys of the leaf.
func (c *cursor) bounds() (b bounds) {
	for _, s := range c.way[:len(c.way)-1] {
		b.first = must(s.key(s.at))
		if s.at+1 < s.count {
			b.end = must(s.key(s.at + 1))
		}
	}
	return b
}

// Next moves to the next row. At the end it stays.
func (c *cursor) Next() (k, v []byte) {
	for {
		i := len(c.way) - 1
		for i >= 0 && c.way[i].at >= c.way[i].count-1 {
			i--
		}
		if i < 0 {
			return nil, nil
		}
		c.way[i].at++
		c.along(i, func(node) int { return 0 })
		if c.leaf().count > 0 {
			return c.row()
		}
	}
}

// Prev moves to the row before. At the beginning it stays.
func (c *cursor) Prev() (k, v []byte) {
	for {
		i := len(c.way) - 1
		for i >= 0 && c.way[i].at <= 0 {
			i--
		}
		if i < 0 {
			c.First()
			return nil, nil
		}
		c.way[i].at--
		c.along(i, last)
		if c.leaf().count > 0 {
			return c.row()
		}
	}
}

// along goes down to a leaf from the place where the i-th step of the way is.
func (c *cursor) along(i int, at func(node) int) {
	if c.way = c.way[:i+1]; !c.way[i].leaf {
		c.down(must(c.tree.node(must(c.way[i].element(c.way[i].at)).child)), at)
	}
}

// down goes down from a page to a leaf.
func (c *cursor) down(n node, at func(node) int) {
	for {
		if len(c.way) > maxDepth {
			panic(fmt.Errorf("page %d is reached in a circle", n.id))
		}
		c.way = append(c.way, step{n, at(n)})
		if n.leaf {
			return
		}
		n = must(c.tree.node(must(n.element(c.leaf().at)).child))
	}
}

func (c *cursor) leaf() *step { return &c.way[len(c.way)-1] }

func (c *cursor) row() (k, v []byte) {
	leaf := c.leaf()
	if leaf.at < 0 || leaf.at >= leaf.count {
		return nil, nil
	}
	e := must(leaf.element(leaf.at))
	if e.flags != 0 { // no row
		return e.key, nil
	}
	return e.key, e.value
}
