package tether.locks;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Stream;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.TestFactory;
import tether.locks.Settings.BootClock;

/** Runs the vectors of the client protocol against the core. */
class VectorsTest {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Set<String> LEVELS = Set.of("L1", "L2", "L3", "CLUSTER");
    private static final Path FOLDER = Path.of("../../protocol/vectors");

    @TestFactory
    Stream<DynamicTest> vectors() throws IOException {
        JsonNode preludes = JSON.readTree(FOLDER.resolve("preludes.json").toFile());
        List<DynamicTest> tests = new ArrayList<>();
        try (Stream<Path> files = Files.list(FOLDER).sorted()) {
            for (Path file : files.filter(path -> path.toString().endsWith(".json")).toList()) {
                JsonNode vectors = JSON.readTree(file.toFile());
                for (JsonNode vector : vectors.isArray() ? vectors : JSON.createArrayNode()) {
                    if (LEVELS.contains(vector.get("level").asText())) {
                        JsonNode prelude = preludes.get(vector.get("begin").asText());
                        tests.add(
                                DynamicTest.dynamicTest(
                                        vector.get("name").asText(),
                                        () -> new World(prelude, vector).run()));
                    }
                }
            }
        }
        return tests.stream();
    }

    private static final class World {
        private final List<JsonNode> steps = new ArrayList<>();
        private final Map<String, String> losses = new HashMap<>();
        private final Core core;
        private final boolean isUnix;

        World(JsonNode prelude, JsonNode vector) {
            ObjectNode client = ((ObjectNode) prelude.get("client")).deepCopy();
            if (vector.has("client")) {
                client.setAll((ObjectNode) vector.get("client"));
            }
            core = new Core(new Stamp(0, 0), settings(client));
            isUnix = client.path("unix").asBoolean();
            prelude.get("steps").forEach(steps::add);
            vector.get("steps").forEach(steps::add);
        }

        void run() {
            for (JsonNode step : steps) {
                String gives = input(step);
                Core.Output output = core.take();
                output.events().forEach(this::remember);
                assertEquals(
                        expected(step, "sent"),
                        json(output.sent(), VectorsTest::words),
                        "sent at " + step);
                assertEquals(
                        expected(step, "events"),
                        json(output.events(), VectorsTest::event),
                        "events at " + step);
                assertEquals(
                        expected(step, "orders"),
                        json(output.orders(), VectorsTest::order),
                        "orders at " + step);
                if (step.has("gives")) {
                    assertEquals(step.get("gives").toString(), gives, "gives at " + step);
                }
            }
        }

        private static JsonNode expected(JsonNode step, String name) {
            return step.has(name) ? step.get(name) : JSON.createArrayNode();
        }

        private void remember(Event event) {
            if (event instanceof Event.Lost lost) {
                losses.put((String) lost.id(), lost.reason());
            }
        }

        /** What {@code check} gave, as JSON, or null. */
        private String input(JsonNode step) {
            if (step.has("call")) {
                return call(step);
            }
            if (step.has("recv")) {
                core.link.received(frame(step.get("recv")));
            } else if (step.has("at")) {
                at(step.get("at"));
            } else if (step.has("stop")) {
                core.now = clocks(step.get("stop"));
            } else if (step.has("connected")) {
                core.link.connected(isUnix);
            } else if (step.has("unreached")) {
                String code = step.get("unreached").path("code").asText();
                core.link.unreached(
                        code.isEmpty() ? Problem.UNREACHABLE : Problem.refused(code, ""));
            } else {
                core.link.broke();
            }
            return null;
        }

        private void at(JsonNode to) {
            double ahead = core.now.boot() - core.now.mono();
            if (to.isNumber()) {
                while (core.now.mono() + core.next() <= to.asDouble()) {
                    double next = core.now.mono() + core.next();
                    core.tick(new Stamp(next, next + ahead));
                }
            }
            core.tick(to.isNumber() ? new Stamp(to.asDouble(), to.asDouble() + ahead) : clocks(to));
        }

        private String call(JsonNode step) {
            String id = step.path("id").asText();
            switch (step.get("call").asText()) {
                case "open" -> core.open();
                case "acquire" -> core.acquire(id, ask(step));
                case "release" -> core.release(id);
                case "give_up" -> core.giveUp(id);
                case "extend" -> core.extend(id, step.get("lease").asDouble());
                case "check" -> {
                    return check(id);
                }
                case "watch" -> core.watches.watch(id, bytes(step.get("keys")));
                case "unwatch" -> core.watches.unwatch(id);
                case "presence" ->
                        core.presences.watch(id, bytes(step.get("prefix")).get(0), false, Map.of());
                case "observe" ->
                        core.presences.watch(id, bytes(step.get("prefix")).get(0), true, Map.of());
                case "end" -> core.presences.end(id);
                case "close" -> core.close();
                default -> throw new IllegalArgumentException(step.toString());
            }
            return null;
        }

        private String check(String id) {
            Request request = core.requests.find(id);
            String loss = losses.get(id);
            if (request == null) {
                return loss == null ? "\"released\"" : lost(loss);
            }
            if (request.phase != Request.Phase.HELD) {
                return request.granted == null ? "\"waiting\"" : "\"released\"";
            }
            String reason = core.check(request, core.link.fence, core.now);
            return reason == null ? "\"held\"" : lost(reason);
        }

        private static String lost(String reason) {
            return "{\"lost\":\"" + reason + "\"}";
        }
    }

    // ---- into the core ----

    private static Stamp clocks(JsonNode to) {
        return to.isNumber()
                ? new Stamp(to.asDouble(), to.asDouble())
                : new Stamp(to.get("mono").asDouble(), to.get("boot").asDouble());
    }

    private static Settings settings(JsonNode client) {
        BootClock boot =
                switch (client.path("boot_clock").asText("true")) {
                    case "uptime" -> BootClock.UPTIME;
                    case "false" -> BootClock.NONE;
                    default -> BootClock.EXACT;
                };
        return new Settings(
                number(client, "grace"),
                client.path("stop_within").asDouble(0),
                number(client, "fence"),
                client.path("cluster").asBoolean(),
                boot,
                () -> client.path("random").asDouble(0));
    }

    private static Double number(JsonNode node, String name) {
        return node.has(name) ? node.get(name).asDouble() : null;
    }

    private static Ask ask(JsonNode step) {
        Ask ask = new Ask(bytes(step.get("keys")));
        ask.temporary = step.has("temporary") ? bytes(step.get("temporary")).get(0) : null;
        ask.isSequence = step.path("seq").asBoolean();
        ask.isElection = step.path("elect").asBoolean();
        ask.isShared = step.path("shared").asBoolean();
        ask.isReentrant = step.path("reentrant").asBoolean();
        ask.permits = step.path("permits").path(0).asInt(0);
        ask.permitsOf = step.path("permits").path(1).asInt(0);
        ask.owner = step.has("owner") ? bytes(step.get("owner")).get(0) : null;
        ask.task = step.has("task") ? step.get("task").asText() : null;
        ask.wait = number(step, "wait");
        ask.lease = number(step, "lease");
        ask.acks = step.path("acks").asInt(0);
        ask.ackTimeout = number(step, "acktimeout");
        ask.atLeast = step.path("at_least").asDouble(0);
        return ask;
    }

    private static List<String> bytes(JsonNode node) {
        List<String> all = new ArrayList<>();
        (node.isArray() ? node : JSON.createArrayNode().add(node))
                .forEach(each -> all.add((String) frame(each)));
        return all;
    }

    private static Object frame(JsonNode node) {
        if (node.isNull()) {
            return null;
        } else if (node.isNumber()) {
            return node.asLong();
        } else if (node.isTextual()) {
            return latin(node.asText().getBytes(StandardCharsets.UTF_8));
        } else if (node.isArray()) {
            List<Object> all = new ArrayList<>();
            node.forEach(each -> all.add(frame(each)));
            return all;
        } else if (node.has("hex")) {
            return latin(HexFormat.of().parseHex(node.get("hex").asText()));
        } else if (node.has("simple")) {
            return node.get("simple").asText();
        } else if (node.has("error")) {
            return new ServerError(node.get("error").asText());
        } else if (node.has("push")) {
            return new Push(list(frame(node.get("push"))));
        }
        Map<Object, Object> map = new LinkedHashMap<>();
        JsonNode fields = node.has("map") ? node.get("map") : node;
        fields.properties().forEach(field -> map.put(field.getKey(), frame(field.getValue())));
        return map;
    }

    private static List<Object> list(Object list) {
        return new ArrayList<>((List<?>) list);
    }

    private static String latin(byte[] bytes) {
        return new String(bytes, StandardCharsets.ISO_8859_1);
    }

    // ---- out of the core ----

    private static <T> ArrayNode json(List<T> all, Function<T, JsonNode> each) {
        ArrayNode array = JSON.createArrayNode();
        all.forEach(one -> array.add(each.apply(one)));
        return array;
    }

    private static JsonNode words(List<String> words) {
        return json(words, VectorsTest::word);
    }

    private static JsonNode word(String text) {
        if (text == null) {
            return JSON.nullNode();
        }
        byte[] bytes = text.getBytes(StandardCharsets.ISO_8859_1);
        try {
            return JSON.getNodeFactory()
                    .textNode(
                            StandardCharsets.UTF_8
                                    .newDecoder()
                                    .decode(java.nio.ByteBuffer.wrap(bytes))
                                    .toString());
        } catch (CharacterCodingException noText) {
            return JSON.createObjectNode().put("hex", HexFormat.of().formatHex(bytes));
        }
    }

    private static JsonNode order(Order order) {
        if (order instanceof Order.Leave leave && leave.after() > 0) {
            return number(JSON.createObjectNode(), "leave_after", leave.after());
        }
        return JSON.getNodeFactory().textNode(order instanceof Order.Connect ? "connect" : "leave");
    }

    private static ObjectNode number(ObjectNode node, String name, double value) {
        return node.put(name, (int) value);
    }

    private static ObjectNode object(String kind, Object id) {
        return JSON.createObjectNode().put(kind, (String) id);
    }

    private static ObjectNode token(ObjectNode node, long token) {
        return token == (int) token ? node.put("token", (int) token) : node.put("token", token);
    }

    private static ObjectNode with(ObjectNode node, Problem problem) {
        return node.put("error", problem.failure().name().toLowerCase(Locale.ROOT))
                .put("code", problem.code());
    }

    private static JsonNode event(Event event) {
        if (event instanceof Event.Granted granted) {
            ObjectNode node = token(object("granted", granted.id()), granted.token());
            return granted.key() == null ? node : node.set("key", word(granted.key()));
        } else if (event instanceof Event.Refused refused) {
            return with(object("refused", refused.id()), refused.problem());
        } else if (event instanceof Event.Lost lost) {
            return object("lost", lost.id()).put("reason", lost.reason());
        } else if (event instanceof Event.Releasing releasing) {
            return object("releasing", releasing.id()).put("code", releasing.problem().code());
        } else if (event instanceof Event.Released released) {
            return object("released", released.id());
        } else if (event instanceof Event.Over over) {
            return object("over", over.id());
        } else if (event instanceof Event.Extended extended) {
            return object("extended", extended.id());
        } else if (event instanceof Event.NotExtended not) {
            return with(object("not_extended", not.id()), not.problem());
        } else if (event instanceof Event.Watched watched) {
            ObjectNode node = object("watch", watched.id()).set("key", word(watched.key()));
            return node.put("is", watched.state().name().toLowerCase(Locale.ROOT));
        } else if (event instanceof Event.Member member) {
            return member(member);
        } else if (event instanceof Event.Leader leader) {
            ObjectNode node = object("leader", leader.id());
            return leader.token() == null
                    ? node.putNull("token")
                    : token(node, leader.token()).set("value", word(leader.value()));
        } else if (event instanceof Event.Ended ended) {
            return with(object("ended", ended.id()), ended.problem());
        }
        return JSON.createObjectNode().put("warning", "no-boot-clock");
    }

    private static JsonNode member(Event.Member member) {
        ObjectNode node = object("presence", member.id()).set("key", word(member.key()));
        node.put("is", member.change().name().toLowerCase(Locale.ROOT));
        return member.reason() != null
                ? node.put("reason", member.reason())
                : token(node, member.token()).set("value", word(member.value()));
    }
}
