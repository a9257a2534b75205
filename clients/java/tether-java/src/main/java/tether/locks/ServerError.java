package tether.locks;

/** An error that the server answered with. Its first word is its code. */
record ServerError(String text) {
    String code() {
        int end = text.indexOf(' ');
        return end < 0 ? text : text.substring(0, end);
    }

    boolean isUnknownCommand() {
        return text.contains("unknown command");
    }

    /** The code of a reply, or an empty string where it is no error. */
    static String code(Object reply) {
        return reply instanceof ServerError error ? error.code() : "";
    }
}
