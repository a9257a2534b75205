package tether.spring;

import io.micrometer.core.instrument.MeterRegistry;
import org.springframework.aop.Advisor;
import org.springframework.aop.support.DefaultPointcutAdvisor;
import org.springframework.beans.factory.ObjectProvider;
import org.springframework.beans.factory.config.BeanDefinition;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.autoconfigure.condition.ConditionalOnProperty;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.health.contributor.HealthIndicator;
import org.springframework.boot.ssl.SslBundles;
import org.springframework.context.ApplicationEventPublisher;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Role;
import org.springframework.integration.leader.DefaultCandidate;
import org.springframework.integration.leader.event.DefaultLeaderEventPublisher;
import org.springframework.integration.support.locks.LockRegistry;
import tether.locks.TetherLocks;
import tether.locks.TetherObserver;

/**
 * Makes a {@link TetherLocks} from {@code spring.data.redis.*} and {@code tether.*}, unless there
 * is one; runs methods with {@link TetherLock} under their locks; and, where the classes are there,
 * has a {@link LockRegistry}, a candidate with its events, a health indicator and meters.
 */
@AutoConfiguration(
        afterName = {
            "org.springframework.boot.micrometer.metrics.autoconfigure.CompositeMeterRegistryAutoConfiguration",
            "org.springframework.boot.actuate.autoconfigure.metrics.CompositeMeterRegistryAutoConfiguration"
        })
@EnableConfigurationProperties({TetherProperties.class, RedisProperties.class})
public class TetherAutoConfiguration {
    /** For Spring. */
    public TetherAutoConfiguration() {}

    @Bean
    @ConditionalOnMissingBean
    TetherLocks tetherLocks(
            RedisProperties redis,
            TetherProperties properties,
            ObjectProvider<SslBundles> bundles,
            ObjectProvider<TetherObserver> observers) {
        return Clients.of(
                redis,
                properties,
                bundle -> bundles.getObject().getBundle(bundle).createSslContext(),
                observers.orderedStream().toList());
    }

    @Bean
    @Role(BeanDefinition.ROLE_INFRASTRUCTURE)
    static Advisor tetherLockAdvisor(ObjectProvider<TetherLocks> locks) {
        DefaultPointcutAdvisor advisor =
                new DefaultPointcutAdvisor(
                        new TetherLockPointcut(), new TetherLockInterceptor(locks::getObject));
        advisor.setOrder(TetherLock.ORDER);
        return advisor;
    }

    /** Spring Integration is there. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(LockRegistry.class)
    static class OfIntegration {
        @Bean
        @ConditionalOnMissingBean(LockRegistry.class)
        TetherLockRegistry tetherLockRegistry(TetherLocks locks) {
            return new TetherLockRegistry(locks, "spring:");
        }

        @Bean
        @ConditionalOnProperty("tether.leader.role")
        @ConditionalOnMissingBean
        TetherLeaderInitiator tetherLeaderInitiator(
                TetherLocks locks, TetherProperties tether, ApplicationEventPublisher events) {
            DefaultCandidate candidate =
                    new DefaultCandidate(tether.leader().id(), tether.leader().role());
            return new TetherLeaderInitiator(
                    locks, "leader:", candidate, new DefaultLeaderEventPublisher(events));
        }
    }

    /** Health is asked for. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(HealthIndicator.class)
    static class OfHealth {
        @Bean
        TetherHealth tetherHealthIndicator() {
            return new TetherHealth();
        }
    }

    /** Meters are kept. */
    @Configuration(proxyBeanMethods = false)
    @ConditionalOnClass(MeterRegistry.class)
    static class OfMeters {
        @Bean
        @ConditionalOnBean(MeterRegistry.class)
        TetherMeters tetherMeters(MeterRegistry registry) {
            return new TetherMeters(registry);
        }
    }
}
