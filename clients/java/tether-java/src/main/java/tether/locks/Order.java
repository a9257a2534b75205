package tether.locks;

/** What the core orders its shell to do with the connection. */
sealed interface Order {
    /**
     * Open a connection and greet on it, within so many milliseconds. {@code slot}: one that the
     * server is to have, or {@link Slot#NONE}.
     */
    record Connect(double within, int slot) implements Order {}

    /**
     * Read and write no more, and close the connection after so many milliseconds. {@code problem}:
     * why the server is of no use, or null.
     */
    record Leave(double after, Problem problem) implements Order {}
}
