package tether.locks.conform;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CancellationException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import tether.locks.Candidate;
import tether.locks.Hold;
import tether.locks.LockRequest;
import tether.locks.LostException;
import tether.locks.Subscription;
import tether.locks.TetherException;
import tether.locks.TetherLocks;
import tether.locks.TetherLocksBuilder;

/**
 * The adapter of tether-java for the suite clients/protocol/conform: a call a line in, an event a
 * line out.
 */
public final class Adapter {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final OutputStream OUT = new FileOutputStream(FileDescriptor.out);

    private final Map<String, Hold> holds = new ConcurrentHashMap<>();
    private final Map<String, Future<?>> requests = new ConcurrentHashMap<>();
    private final Map<String, ExecutorService> sources = new ConcurrentHashMap<>();
    private final Map<String, Subscription> subscriptions = new ConcurrentHashMap<>();
    private final Map<String, CountDownLatch> paused = new ConcurrentHashMap<>();
    private final Map<String, Candidate> candidates = new ConcurrentHashMap<>();
    private final Map<String, Boolean> lost = new ConcurrentHashMap<>();
    private final Set<String> givenUp = ConcurrentHashMap.newKeySet();
    private final ExecutorService threads =
            Executors.newCachedThreadPool(
                    run -> {
                        Thread thread = new Thread(run);
                        thread.setDaemon(true);
                        return thread;
                    });
    private TetherLocks locks;
    private Data data;

    private Adapter() {}

    /**
     * Reads calls until the input ends.
     *
     * @param arguments none
     * @throws IOException the input cannot be read
     */
    public static void main(String[] arguments) throws IOException {
        ObjectNode hello = object("hello", "tether-java 0.2.0");
        Stream.of("L1", "L2", "L3", "CLUSTER").forEach(hello.putArray("levels")::add);
        Stream.of(
                        "extend",
                        "guard",
                        "check_server",
                        "execute",
                        "watch",
                        "unwatch",
                        "presence",
                        "observe",
                        "end",
                        "pause",
                        "go_on")
                .forEach(hello.putArray("calls")::add);
        say(hello);
        Adapter adapter = new Adapter();
        BufferedReader lines =
                new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            adapter.line(JSON.readTree(line));
        }
        System.exit(0); // Without close.
    }

    private static ObjectNode object(String name, String value) {
        return JSON.createObjectNode().put(name, value);
    }

    private static void say(ObjectNode event) {
        event.put("at", System.nanoTime() / 1e9);
        byte[] line = (event + "\n").getBytes(StandardCharsets.UTF_8);
        synchronized (OUT) {
            try {
                OUT.write(line);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }
    }

    private static ObjectNode with(ObjectNode event, Throwable error) {
        Throwable cause = error instanceof CompletionException ? error.getCause() : error;
        if (cause instanceof TetherException own) {
            return event.put("error", own.failure().name().toLowerCase(Locale.ROOT))
                    .put("code", own.code())
                    .put("text", own.getMessage());
        }
        return event.put("error", "unreachable").put("code", cause.toString());
    }

    private void line(JsonNode call) {
        ObjectNode answer = JSON.createObjectNode().put("done", call.get("n").asLong());
        try {
            answer(call, answer);
        } catch (Exception error) {
            answer.put("error", error.toString());
        }
        say(answer);
    }

    private void answer(JsonNode call, ObjectNode answer) throws Exception {
        String id = call.path("id").asText();
        switch (call.get("call").asText()) {
            case "open" -> open(call);
            case "acquire" -> acquire(id, call);
            case "release" -> release(id);
            case "give_up" -> giveUp(id);
            case "check" -> check(id, call, answer);
            case "extend" ->
                    after(
                            holds.get(id).extendAsync(ms(call, "lease")).toCompletableFuture(),
                            object("extended", id),
                            object("not_extended", id));
            case "guard" -> threads.submit(() -> guard(id, call.get("command")));
            case "check_server" -> threads.submit(() -> checkServer(id));
            case "execute" -> execute(answer);
            case "watch" ->
                    subscribe(
                            id,
                            locks.watch(
                                    texts(call.get("keys")),
                                    event -> {
                                        awaitReading(id);
                                        String is = event.kind().name().toLowerCase(Locale.ROOT);
                                        say(
                                                object("watch", id)
                                                        .put("key", event.key())
                                                        .put("is", is));
                                    }));
            case "presence" ->
                    subscribe(
                            id,
                            locks.presence(
                                    call.get("prefix").asText(),
                                    event -> {
                                        ObjectNode said =
                                                object("presence", id).put("key", event.key());
                                        switch (event.kind()) {
                                            case ADDED -> said.put("is", "add");
                                            case CHANGED -> said.put("is", "set");
                                            default ->
                                                    said.put("is", "del")
                                                            .put("reason", event.reason());
                                        }
                                        say(
                                                event.reason() != null
                                                        ? said
                                                        : said.put("token", event.token())
                                                                .put("value", event.value()));
                                    }));
            case "observe" ->
                    subscribe(
                            id,
                            locks.observe(
                                    call.get("prefix").asText(),
                                    leader ->
                                            say(
                                                    leader.map(
                                                                    one ->
                                                                            object("leader", id)
                                                                                    .put(
                                                                                            "token",
                                                                                            one
                                                                                                    .token())
                                                                                    .put(
                                                                                            "value",
                                                                                            one
                                                                                                    .value()))
                                                            .orElseGet(
                                                                    () ->
                                                                            object("leader", id)
                                                                                    .putNull(
                                                                                            "token")))));
            case "pause" -> paused.put(id, new CountDownLatch(1));
            case "go_on" -> paused.remove(id).countDown();
            case "unwatch", "end" -> subscriptions.remove(id).close();
            case "close" ->
                    threads.submit(
                            () -> {
                                locks.close();
                                say(JSON.createObjectNode().put("closed", true));
                            });
            default -> answer.put("unknown", true);
        }
    }

    private static List<String> texts(JsonNode array) {
        return StreamSupport.stream(array.spliterator(), false).map(JsonNode::asText).toList();
    }

    private static Duration ms(JsonNode call, String name) {
        return Duration.ofNanos((long) (call.get(name).asDouble() * 1e6));
    }

    private void open(JsonNode call) throws IOException, GeneralSecurityException {
        TetherLocksBuilder builder =
                TetherLocks.builder(call.path("url").asText("redis://localhost"));
        if (call.has("password")) {
            builder.credentials(call.path("user").asText(null), call.get("password").asText());
        }
        if (call.has("others")) {
            builder.others(texts(call.get("others")).toArray(String[]::new));
        }
        if (call.has("sentinels")) {
            builder.sentinels(
                    call.get("master").asText(),
                    texts(call.get("sentinels")).toArray(String[]::new));
        }
        if (call.has("ca")) {
            builder.tls(trusting(Path.of(call.get("ca").asText())));
        }
        if (call.path("cluster").asBoolean()) {
            builder.cluster();
        }
        if (call.has("grace")) {
            builder.grace(ms(call, "grace"));
        }
        if (call.has("stop_within")) {
            builder.stopWithin(ms(call, "stop_within"));
        }
        if (call.has("fence")) {
            builder.fence(ms(call, "fence"));
        }
        data = new Data(call);
        locks = builder.build();
    }

    private static SSLContext trusting(Path authority)
            throws IOException, GeneralSecurityException {
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null);
        try (InputStream in = Files.newInputStream(authority)) {
            trusted.setCertificateEntry(
                    "authority", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        TrustManagerFactory factory =
                TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        factory.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, factory.getTrustManagers(), null);
        return context;
    }

    // ---- requests ----

    private LockRequest request(JsonNode call) {
        List<String> keys = texts(call.get("keys"));
        LockRequest request;
        if (call.has("temporary")) {
            request = locks.temporaryKey(keys.get(0), call.get("temporary").asText());
        } else if (call.has("permits")) {
            JsonNode permits = call.get("permits");
            request = locks.semaphore(keys.get(0), permits.get(0).asInt(), permits.get(1).asInt());
        } else {
            request = locks.all(keys.toArray(String[]::new));
        }
        request = call.path("shared").asBoolean() ? request.shared() : request;
        request = call.path("reentrant").asBoolean() ? request.reentrant() : request;
        request = call.path("seq").asBoolean() ? request.sequence() : request;
        request = call.has("wait") ? request.waitAtMost(ms(call, "wait")) : request;
        request = call.has("lease") ? request.lease(ms(call, "lease")) : request;
        request = call.has("at_least") ? request.atLeast(ms(call, "at_least")) : request;
        request = call.has("owner") ? request.owner(call.get("owner").asText()) : request;
        if (call.has("acktimeout")) {
            request = request.acknowledgedBy(call.get("acks").asInt(), ms(call, "acktimeout"));
        } else if (call.has("acks")) {
            request = request.acknowledgedBy(call.get("acks").asInt());
        }
        return request;
    }

    private void acquire(String id, JsonNode call) {
        if (call.path("elect").asBoolean()) {
            elect(id, call);
        } else if (call.has("from")) {
            LockRequest request = request(call);
            ExecutorService source =
                    sources.computeIfAbsent(
                            call.get("from").asText(), name -> Executors.newSingleThreadExecutor());
            requests.put(id, source.submit(() -> block(id, request)));
        } else {
            CompletableFuture<Hold> granted = request(call).acquireAsync();
            requests.put(id, granted);
            granted.whenComplete((hold, error) -> granted(id, hold, error));
        }
    }

    private void block(String id, LockRequest request) {
        try {
            granted(id, request.acquire(), null);
        } catch (InterruptedException givenUp) {
            granted(id, null, new CancellationException());
        } catch (TetherException error) {
            granted(id, null, error);
        }
    }

    private void granted(String id, Hold hold, Throwable error) {
        if (error instanceof CancellationException) {
            say(object("over", id));
        } else if (error != null) {
            say(with(object("refused", id), error));
        } else {
            holds.put(id, hold);
            if (givenUp.contains(id)) { // It was cancelled between the grant and this call.
                hold.releaseAsync();
                return;
            }
            say(object("granted", id).put("token", hold.token()));
            hold.onLost(reason -> sayLost(id, reason));
        }
    }

    private void elect(String id, JsonNode call) {
        String name = call.get("keys").get(0).asText();
        Candidate candidate = locks.elect(name, call.get("temporary").asText());
        candidates.put(id, candidate);
        candidate.onElected(term -> granted(id, term, null));
    }

    private void sayLost(String id, String reason) {
        if (lost.put(id, true) == null || candidates.containsKey(id)) {
            say(object("lost", id).put("reason", reason));
        }
    }

    private void giveUp(String id) {
        if (candidates.containsKey(id)) {
            candidates.get(id).close();
            return;
        }
        givenUp.add(id);
        if (holds.containsKey(id)) {
            release(id);
        } else {
            requests.get(id).cancel(true);
        }
    }

    private void release(String id) {
        CompletableFuture<Void> released = holds.get(id).releaseAsync().toCompletableFuture();
        released.whenComplete(
                (nothing, error) -> {
                    Throwable cause =
                            error instanceof CompletionException ? error.getCause() : error;
                    if (cause instanceof LostException loss) {
                        sayLost(id, loss.reason());
                    } else if (cause != null) {
                        say(with(object("not_released", id), cause));
                    } else {
                        say(object("released", id));
                    }
                });
    }

    /**
     * As a collection of garbage does, which stops all threads: a helper stops this process for so
     * long.
     */
    private static void stall(long ms) throws IOException, InterruptedException {
        String pid = Long.toString(ProcessHandle.current().pid());
        String script = "kill -STOP $0; sleep $1; kill -CONT $0";
        new ProcessBuilder("sh", "-c", script, pid, Double.toString(ms / 1000.0)).start().waitFor();
    }

    private void check(String id, JsonNode call, ObjectNode answer)
            throws IOException, InterruptedException {
        if (call.has("stall")) {
            stall(call.get("stall").asLong());
        }
        Hold hold = holds.get(id);
        if (hold == null) {
            answer.put("gives", "waiting");
        } else if (hold.isReleased()) {
            answer.put("gives", "released");
        } else if (hold.loss().isPresent()) {
            answer.putObject("gives").put("lost", hold.loss().get());
        } else {
            answer.put("gives", "held");
        }
    }

    private static void after(CompletableFuture<Void> call, ObjectNode said, ObjectNode otherwise) {
        call.whenComplete((nothing, error) -> say(error == null ? said : with(otherwise, error)));
    }

    private void guard(String id, JsonNode command) {
        try {
            Object reply = holds.get(id).run(data, texts(command).toArray(String[]::new));
            ObjectNode ran = object("ran", id);
            if (reply instanceof Long number) {
                say(ran.put("reply", number));
            } else {
                say(ran.put("reply", (String) reply));
            }
        } catch (LostException loss) {
            sayLost(id, loss.reason());
        } catch (Exception error) {
            say(with(object("not_run", id), error));
        }
    }

    private void checkServer(String id) {
        try {
            holds.get(id).checkServer();
            say(object("checked", id));
        } catch (LostException loss) {
            sayLost(id, loss.reason());
        } catch (Exception error) {
            say(with(object("not_checked", id), error));
        }
    }

    /** The sockets that an executed child has. */
    private static void execute(ObjectNode answer) throws IOException {
        List<String> command = new ArrayList<>(List.of("sh", "-c"));
        command.add("for each in /proc/self/fd/*; do readlink $each; done");
        Process child =
                new ProcessBuilder(command)
                        .redirectInput(ProcessBuilder.Redirect.from(new File("/dev/null")))
                        .start();
        String listing = new String(child.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        answer.set(
                "sockets",
                JSON.valueToTree(
                        listing.lines()
                                .filter(link -> link.startsWith("socket"))
                                .collect(Collectors.toList())));
    }

    private void subscribe(String id, Subscription subscription) {
        subscriptions.put(id, subscription);
        subscription
                .ended()
                .whenComplete(
                        (nothing, error) -> {
                            if (error != null) {
                                say(with(object("ended", id), error));
                            }
                        });
    }

    /** A reader that is paused takes nothing. */
    private void awaitReading(String id) {
        CountDownLatch pause = paused.get(id);
        try {
            if (pause != null) {
                pause.await();
            }
        } catch (InterruptedException closed) {
            Thread.currentThread().interrupt();
        }
    }
}
