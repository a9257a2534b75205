package tether.locks;

import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;

/** Where a server is, and who greets it. {@code path}: of a Unix socket, otherwise null. */
record Address(
        String host,
        int port,
        String path,
        boolean isTls,
        String user,
        String password,
        int database) {
    private static final int PORT = 6379;

    /** {@code redis://}, {@code rediss://} (TLS) or {@code unix://}. */
    static Address of(String uri) {
        URI parsed;
        try {
            parsed = URI.create(uri);
        } catch (IllegalArgumentException error) {
            throw new IllegalArgumentException("the URI of the server cannot be read"); // P-ERR-3
        }
        if (parsed.getRawAuthority() != null && parsed.getHost() == null) {
            throw new IllegalArgumentException(
                    "the URI of the server has no host that can be read: a host's name has no"
                            + " underscore, and in a password / ? # @ are percent-encoded");
        }
        String scheme = parsed.getScheme() == null ? "" : parsed.getScheme();
        String path = parsed.getPath() == null ? "" : parsed.getPath();
        boolean isUnix = scheme.equals("unix");
        if (!isUnix && !parsed.getRawSchemeSpecificPart().startsWith("//")) {
            throw unknownScheme();
        }
        boolean isHere = parsed.getHost() == null || parsed.getHost().equals("localhost");
        if (isUnix && !(isHere && path.startsWith("/"))) {
            throw new IllegalArgumentException(
                    "the URI of a Unix socket is unix:///path, without a host");
        }
        String[] who =
                parsed.getRawUserInfo() == null
                        ? new String[0]
                        : parsed.getRawUserInfo().split(":", 2);
        String user = who.length > 0 && !who[0].isEmpty() ? decoded(who[0]) : null;
        String password = who.length > 1 ? decoded(who[1]) : null;
        return switch (scheme) {
            case "redis", "rediss" -> {
                String host = parsed.getHost() == null ? "localhost" : parsed.getHost();
                String bare = host.startsWith("[") ? host.substring(1, host.length() - 1) : host;
                int port = parsed.getPort() < 0 ? PORT : parsed.getPort();
                String name = path.replaceFirst("^/", "");
                int database = name.isEmpty() ? 0 : number(name);
                yield new Address(
                        bare, port, null, scheme.equals("rediss"), user, password, database);
            }
            case "unix" ->
                    new Address(
                            null, 0, path, false, user, password, databaseOf(parsed.getQuery()));
            default -> throw unknownScheme();
        };
    }

    private static IllegalArgumentException unknownScheme() {
        return new IllegalArgumentException(
                "the URI must begin with redis://, rediss:// or unix://");
    }

    private static int databaseOf(String query) {
        return query != null && query.startsWith("db=") ? number(query.substring(3)) : 0;
    }

    private static int number(String text) {
        try {
            return Integer.parseInt(text);
        } catch (NumberFormatException error) { // It may name a part of a password (P-ERR-3).
            throw new IllegalArgumentException("the URI's database is no number");
        }
    }

    private static String decoded(String text) {
        return URLDecoder.decode(text.replace("+", "%2B"), StandardCharsets.UTF_8);
    }

    boolean isUnix() {
        return path != null;
    }

    /** The same credentials at another place. */
    Address at(String otherHost, int otherPort) {
        return new Address(otherHost, otherPort, null, isTls, user, password, database);
    }

    Address withCredentials(String otherUser, String otherPassword) {
        return new Address(host, port, path, isTls, otherUser, otherPassword, database);
    }

    boolean isAt(String otherHost, int otherPort) {
        return otherHost.equals(host) && otherPort == port;
    }

    /** Without credentials (P-ERR-3). */
    @Override
    public String toString() {
        return isUnix() ? path : host + ":" + port;
    }
}
