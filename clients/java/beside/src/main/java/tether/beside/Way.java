package tether.beside;

import java.io.IOException;
import java.util.concurrent.locks.Lock;
import java.util.function.Function;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.ExponentialBackoffRetry;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import tether.locks.Hold;
import tether.locks.TetherLocks;

/** What one would take a lock with: its usual client, with its usual settings. */
enum Way {
    TETHER("tether-java", "this module") {
        @Override
        OwnServer serve() throws IOException, InterruptedException {
            return OwnServer.redis("--loadmodule", OwnServer.needed("TETHER_MODULE"));
        }

        @Override
        Program open(int port, String name) {
            TetherLocks locks = TetherLocks.builder("redis://127.0.0.1:" + port).build();
            return new Program() {
                private Hold hold;

                @Override
                public void lock() throws InterruptedException {
                    hold = locks.lock(name).acquire();
                }

                @Override
                public void unlock() {
                    hold.close();
                }

                @Override
                public void close() {
                    locks.close();
                }
            };
        }
    },
    REDISSON("Redisson", "`RLock`, watchdog of 30 s") {
        @Override
        Program open(int port, String name) {
            return redisson(port, redisson -> redisson.getLock(name));
        }
    },
    REDISSON_FAIR("Redisson fair", "`RFairLock`, watchdog of 30 s") {
        @Override
        Program open(int port, String name) {
            return redisson(port, redisson -> redisson.getFairLock(name));
        }
    },
    SPRING("Spring's RedisLockRegistry", "on Lettuce, expiry of 60 s, tries again each 100 ms") {
        @Override
        Program open(int port, String name) {
            LettuceConnectionFactory factory = new LettuceConnectionFactory("127.0.0.1", port);
            factory.afterPropertiesSet();
            factory.start();
            RedisLockRegistry registry = new RedisLockRegistry(factory, "bench");
            return of(
                    registry.obtain(name),
                    () -> {
                        registry.destroy();
                        factory.destroy();
                    });
        }
    },
    CURATOR("Curator on ZooKeeper", "`InterProcessMutex`, session of 40 s, one ZooKeeper") {
        @Override
        OwnServer serve() throws IOException, InterruptedException {
            return OwnServer.zookeeper();
        }

        @Override
        Program open(int port, String name) {
            CuratorFramework curator =
                    CuratorFrameworkFactory.newClient(
                            "127.0.0.1:" + port, new ExponentialBackoffRetry(100, 10));
            curator.start();
            InterProcessMutex mutex = new InterProcessMutex(curator, "/" + name);
            return new Program() {
                @Override
                public void lock() throws Exception {
                    mutex.acquire();
                }

                @Override
                public void unlock() throws Exception {
                    mutex.release();
                }

                @Override
                public void close() {
                    curator.close();
                }
            };
        }
    };

    /** One program with the lock, in one thread at a time. */
    interface Program extends AutoCloseable {
        void lock() throws Exception;

        void unlock() throws Exception;

        @Override
        void close() throws Exception;
    }

    private interface End {
        void run() throws Exception;
    }

    final String title;
    final String about;

    Way(String title, String about) {
        this.title = title;
        this.about = about;
    }

    /** Without the module, where it is not asked for. */
    OwnServer serve() throws IOException, InterruptedException {
        return OwnServer.redis();
    }

    /** A client of its own. */
    abstract Program open(int port, String name);

    private static Program redisson(int port, Function<RedissonClient, Lock> lock) {
        Config config = new Config();
        config.setThreads(2).setNettyThreads(2);
        config.useSingleServer()
                .setAddress("redis://127.0.0.1:" + port)
                .setConnectionMinimumIdleSize(1)
                .setConnectionPoolSize(4);
        RedissonClient redisson = Redisson.create(config);
        return of(lock.apply(redisson), redisson::shutdown);
    }

    private static Program of(Lock lock, End end) {
        return new Program() {
            @Override
            public void lock() {
                lock.lock();
            }

            @Override
            public void unlock() {
                lock.unlock();
            }

            @Override
            public void close() throws Exception {
                end.run();
            }
        };
    }
}
