package tether.locks;

/** What the core orders its shell to do with the connection. */
sealed interface Order {
    /** Open a connection and greet on it, within so many milliseconds. */
    record Connect(double within) implements Order {}

    /** Read and write no more, and close the connection after so many milliseconds. */
    record Leave(double after) implements Order {}
}
