package tether.locks;

import java.util.List;

/** A frame that the server sends without having been asked. */
record Push(List<Object> elements) {}
