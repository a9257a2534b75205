package tether.beside;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.curator.test.TestingServer;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import tether.locks.Pages;
import tether.locks.TestServer;

/** The first of each pair of the page: what people wrote, with the real libraries and servers. */
@Timeout(600)
class OriginalsTest {
    private static final String BEFORE =
            """
            import org.apache.curator.framework.*;
            import org.apache.curator.framework.api.CuratorWatcher;
            import org.apache.curator.framework.recipes.leader.LeaderLatch;
            import org.apache.curator.framework.recipes.locks.InterProcessMutex;
            import org.apache.curator.framework.recipes.nodes.GroupMember;
            import org.apache.curator.retry.RetryOneTime;
            import org.apache.zookeeper.CreateMode;
            import org.redisson.Redisson;
            import org.redisson.api.*;
            import org.redisson.config.Config;
            import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
            import org.springframework.data.redis.core.StringRedisTemplate;
            import org.springframework.data.redis.core.script.RedisScript;
            import redis.clients.jedis.Jedis;
            import redis.clients.jedis.params.SetParams;
            LettuceConnectionFactory factory = new LettuceConnectionFactory("127.0.0.1", PORT);
            factory.afterPropertiesSet();
            factory.start();
            StringRedisTemplate template = new StringRedisTemplate(factory);
            Jedis jedis = new Jedis("127.0.0.1", PORT);
            Config config = new Config();
            config.useSingleServer().setAddress("redis://127.0.0.1:PORT");
            RedissonClient redisson = Redisson.create(config);
            CuratorFramework curator =
                    CuratorFrameworkFactory.newClient("ZOOKEEPER", new RetryOneTime(1000));
            curator.start();
            Runnable work = () -> System.out.println("worked");
            """;
    private static final String AFTER =
            """
            curator.close();
            redisson.shutdown();
            jedis.close();
            factory.destroy();
            """;

    @Test
    void theyRun(@TempDir Path folder) throws Exception {
        List<String> examples = new ArrayList<>(List.of(BEFORE));
        examples.addAll(Pages.examples(Path.of("..", "coming-from.md"), "java was"));
        examples.add(AFTER);
        try (TestServer server = TestServer.start();
                TestingServer zookeeper = new TestingServer(true)) {
            Pages.assertRun(
                    folder,
                    examples,
                    Set.of("Runnable work =", "String COMPARE_AND_DELETE =", "curator.close()"),
                    code ->
                            code.replace("PORT", Integer.toString(server.port))
                                    .replace("ZOOKEEPER", zookeeper.getConnectString()));
        }
    }
}
