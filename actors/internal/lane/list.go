package lane

// list is a doubly linked list of entries, so that a call leaves the middle of the
// line as cheaply as its head.
type list struct {
	head, tail *entry
	n          int
}

func (q *list) pushBack(e *entry) { q.insertAfter(q.tail, e) }

// insertAfter puts e behind at, or at the head when at is nil.
func (q *list) insertAfter(at, e *entry) {
	e.prev = at
	if at == nil {
		e.next, q.head = q.head, e
	} else {
		e.next, at.next = at.next, e
	}
	if e.next == nil {
		q.tail = e
	} else {
		e.next.prev = e
	}
	q.n++
}

// insertBySeq puts e where its age belongs. Only calls that were started before
// come this way, so that the walk is as short as the number of those.
func (q *list) insertBySeq(e *entry) {
	var at *entry
	for n := q.head; n != nil && n.seq < e.seq; n = n.next {
		at = n
	}
	q.insertAfter(at, e)
}

func (q *list) remove(e *entry) {
	if e.prev == nil {
		q.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	q.n--
}
